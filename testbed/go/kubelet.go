package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	config "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

// newKubelet is the published kubelet on a machine of our choice: the published command gives no way to put
// something of one's own in cAdvisor's place. Everything else is started the way the published command does it.
//
// It takes the kubelet's own flags and one more, --machine, the file that describes the machine. Settings come
// from the file of --config; a flag for a setting that belongs there is not understood.
func newKubelet() *cobra.Command {
	flags := options.NewKubeletFlags()
	var description string
	command := &cobra.Command{
		Use:          "kubelet",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			machine, err := readMachine(description, flags.RootDirectory)
			if err != nil {
				return err
			}
			return runKubelet(genericapiserver.SetupSignalContext(), flags, machine)
		},
	}
	own := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.AddFlags(own)
	own.StringVar(&description, "machine", "", "file that describes the machine")
	command.Flags().AddFlagSet(own)
	return command
}

func runKubelet(ctx context.Context, flags *options.KubeletFlags, machine *machine) error {
	settings, err := readKubeletConfiguration(ctx, flags.KubeletConfigFile)
	if err != nil {
		return err
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(settings.FeatureGates); err != nil {
		return err
	}
	logs.InitLogs()
	if err := logsapi.ValidateAndApply(&settings.Logging, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	err = errors.Join(
		options.ValidateKubeletFlags(flags),
		validation.ValidateKubeletConfiguration(settings, utilfeature.DefaultFeatureGate),
	)
	if err != nil {
		return err
	}
	kubelet := &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *settings}
	dependencies, err := app.UnsecuredDependencies(ctx, kubelet, utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	dependencies.CAdvisorInterface = machine
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	return app.Run(ctx, kubelet, dependencies, utilfeature.DefaultFeatureGate)
}

func readKubeletConfiguration(ctx context.Context, file string) (*config.KubeletConfiguration, error) {
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, file)
	if err != nil {
		return nil, err
	}
	settings, err := loader.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubelet's configuration %s: %w", file, err)
	}
	if settings.EvictionHard == nil {
		// The published command has defaults here that look at the real machine; ours has no use for them.
		fmt.Fprintf(os.Stderr, "kubelet: %s sets no evictionHard: nothing is ever evicted\n", file)
	}
	return settings, nil
}
