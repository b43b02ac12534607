// Command init is the first process of a simulated node and of every pod: it does nothing but bury the dead.
//
// Orphans become its children; it waits for them until it is told to end.
package main

import (
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() {
	// It lives as long as its pod and allocates nothing.
	debug.SetGCPercent(-1)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		// One signal may stand for many that have ended.
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
