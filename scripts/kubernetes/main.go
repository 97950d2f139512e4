// The parts of a Kubernetes cluster, of which the tests start one: `kubernetes kubelet --config=…`. They are Kubernetes'
// own commands as they are. In one program they share most of their code, so they are built and kept at a third of what
// four programs take.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // for the time zones of CronJobs

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if name == "--version" {
		fmt.Println(version.Get().GitVersion)
		return
	}
	part, known := parts[name]
	if !known {
		fmt.Fprintln(os.Stderr, "usage: kubernetes kube-apiserver|kube-controller-manager|kube-scheduler|kubelet OPTION…")
		os.Exit(2)
	}
	os.Args = append([]string{name}, os.Args[2:]...)
	os.Exit(cli.Run(part()))
}
