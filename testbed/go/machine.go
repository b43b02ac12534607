package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/cadvisor/info/v1"
	v2 "github.com/google/cadvisor/info/v2"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
)

// machine stands in cAdvisor's place and tells the kubelet what it runs on: a machine of any size.
//
// Sizes are as described; what is left on the file systems and the kernel's version are the real machine's. It
// measures no container: nobody is evicted for what they use, and there are no usage metrics.
type machine struct {
	// CPUs, bytes of memory, bytes of ephemeral storage.
	CPU              int    `json:"cpu"`
	Memory           uint64 `json:"memory"`
	EphemeralStorage uint64 `json:"ephemeralStorage"`
	// Identity of the machine, as the Node shows it.
	MachineID string `json:"machineID"`
	// Where the kubelet keeps the pods' files.
	root string
}

var _ cadvisor.Interface = (*machine)(nil)

// readMachine reads a description in JSON; root is the kubelet's own folder.
func readMachine(file, root string) (*machine, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the machine's description (--machine): %w", err)
	}
	described := &machine{root: root}
	if err := json.Unmarshal(text, described); err != nil {
		return nil, fmt.Errorf("cannot understand the machine's description %s: %w", file, err)
	}
	return described, nil
}

func (m *machine) Start() error { return nil }

// MachineInfo tells no CPU's place: the kubelet would confine pods to CPUs that are not there.
func (m *machine) MachineInfo() (*v1.MachineInfo, error) {
	return &v1.MachineInfo{
		NumCores:         m.CPU,
		NumPhysicalCores: m.CPU,
		NumSockets:       1,
		MemoryCapacity:   m.Memory,
		MachineID:        m.MachineID,
		SystemUUID:       m.MachineID,
		BootID:           firstLine("/proc/sys/kernel/random/boot_id"),
	}, nil
}

func (m *machine) VersionInfo() (*v1.VersionInfo, error) {
	return &v1.VersionInfo{
		KernelVersion:      firstLine("/proc/sys/kernel/osrelease"),
		ContainerOsVersion: "gpupool testbed",
	}, nil
}

// ContainerInfoV2 gives one empty sample: the kubelet takes it for a group that uses nothing.
func (m *machine) ContainerInfoV2(name string, _ v2.RequestOptions) (map[string]v2.ContainerInfo, error) {
	sample := &v2.ContainerStats{Timestamp: time.Now()}
	return map[string]v2.ContainerInfo{name: {Stats: []*v2.ContainerStats{sample}}}, nil
}

func (m *machine) GetRequestedContainersInfo(string, v2.RequestOptions) (map[string]*v1.ContainerInfo, error) {
	return map[string]*v1.ContainerInfo{}, nil
}

func (m *machine) ImagesFsInfo(context.Context) (v2.FsInfo, error)    { return m.GetDirFsInfo(m.root) }
func (m *machine) ContainerFsInfo(context.Context) (v2.FsInfo, error) { return m.GetDirFsInfo(m.root) }

// RootFsInfo is the described ephemeral storage, with the real file system's use.
func (m *machine) RootFsInfo() (v2.FsInfo, error) {
	info, err := m.GetDirFsInfo(m.root)
	info.Capacity = m.EphemeralStorage
	info.Available = m.EphemeralStorage - min(info.Usage, m.EphemeralStorage)
	return info, err
}

func (m *machine) GetDirFsInfo(path string) (v2.FsInfo, error) {
	var found syscall.Statfs_t
	if err := syscall.Statfs(path, &found); err != nil {
		return v2.FsInfo{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := uint64(found.Bsize)
	inodes, inodesFree := found.Files, found.Ffree
	return v2.FsInfo{
		Timestamp:  time.Now(),
		Device:     "testbed",
		Mountpoint: path,
		Capacity:   found.Blocks * block,
		Available:  found.Bavail * block,
		Usage:      (found.Blocks - found.Bfree) * block,
		Inodes:     &inodes,
		InodesFree: &inodesFree,
	}, nil
}

// firstLine of a file of the kernel's, or nothing.
func firstLine(file string) string {
	text, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
