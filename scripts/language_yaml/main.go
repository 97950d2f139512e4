// Pulumi's host for programs in YAML, started as its own command starts it, in the last version that can be had as a Go
// module. Two things are as in later versions: Link, which `pulumi package add` calls, and the engine's own loader of
// schemas, since this version's keeps a copy beside the plugin's folder and reads it when it is stale.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/pulumi/pulumi-yaml/pkg/server"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/cmdutil"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/logging"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
)

type host struct {
	pulumirpc.LanguageRuntimeServer
}

// Link has nothing to do: a program in YAML finds the declaration below sdks/ by itself. Later versions answer the same.
func (host) Link(context.Context, *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	return &pulumirpc.LinkResponse{}, nil
}

func main() {
	tracing := flag.String("tracing", "", "a Zipkin endpoint")
	flag.String("root", "", "the program's folder; the engine's requests say it, too")
	flag.Parse()
	engine := flag.Arg(0)
	logging.InitLogging(false, 0, false)
	cmdutil.InitTracing("pulumi-language-yaml", "pulumi-language-yaml", *tracing)

	ended := make(chan bool)
	if engine != "" {
		ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
		if err := rpcutil.Healthcheck(ctx, engine, 5*time.Minute, cancel); err != nil {
			cmdutil.Exit(err)
		}
		go func() {
			<-ctx.Done()
			cancel() // a second interrupt ends it at once
			close(ended)
		}()
	}
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: ended,
		Init: func(at *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(at, host{server.NewLanguageHost(engine, *tracing, true)})
			return nil
		},
	})
	if err != nil {
		cmdutil.Exit(err)
	}
	fmt.Println(handle.Port)
	if err := <-handle.Done; err != nil {
		cmdutil.Exit(err)
	}
}
