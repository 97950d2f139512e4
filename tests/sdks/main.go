// The engine's own generators, as a command: `sdks SCHEMA FOLDER` writes FOLDER/python, FOLDER/nodejs and FOLDER/go.
//
// `pulumi package gen-sdk` asks a language's host to do it. The Python host that can be built here is too old for that,
// and no module holds Node's; the generators themselves are packages of the engine's module.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	gogen "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

const tool = "sweepstack"

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
	for language, generate := range map[string]func(*schema.Package) (map[string][]byte, error){
		"python": func(bound *schema.Package) (map[string][]byte, error) {
			return python.GeneratePackage(tool, bound, nil, noOthers{})
		},
		"go": func(bound *schema.Package) (map[string][]byte, error) {
			return gogen.GeneratePackage(tool, bound, nil)
		},
		"nodejs": func(bound *schema.Package) (map[string][]byte, error) {
			return nodejs.GeneratePackage(tool, bound, nil, nil, false, noOthers{})
		},
	} {
		// Bound anew for each: a generator reads its own part of `language` and leaves the rest as it is.
		var spec schema.PackageSpec
		if err := json.Unmarshal(text, &spec); err != nil {
			return err
		}
		bound, diagnostics, err := schema.BindSpec(spec, noOthers{}, schema.ValidationOptions{})
		if err != nil {
			return err
		}
		if len(diagnostics) != 0 {
			return diagnostics
		}
		files, err := generate(bound)
		if err != nil {
			return fmt.Errorf("%s: %w", language, err)
		}
		for name, content := range files {
			target := filepath.Join(folder, language, name)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(target, content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
