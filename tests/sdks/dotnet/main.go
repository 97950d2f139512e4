// The generator of .NET SDKs, as a command: `dotnet SCHEMA FOLDER` writes FOLDER/dotnet.
//
// The engine's module had it until v3.206; it is a module of its own since, which the Go proxy does not serve.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/pkg/v3/codegen/dotnet"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

// Our schema refers to no other package, so none is ever loaded; the binder wants a loader all the same.
type noOthers struct{ schema.ReferenceLoader }

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path, folder string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec schema.PackageSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	// It fetches the package's logo, or Pulumi's, whatever it is told.
	logo := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer logo.Close()
	spec.LogoURL = logo.URL
	bound, diagnostics, err := schema.BindSpec(spec, noOthers{}, schema.ValidationOptions{})
	if err != nil {
		return err
	}
	if len(diagnostics) != 0 {
		return diagnostics
	}
	files, err := dotnet.GeneratePackage("sweepstack", bound, nil, nil)
	if err != nil {
		return err
	}
	for name, content := range files {
		target := filepath.Join(folder, "dotnet", name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
