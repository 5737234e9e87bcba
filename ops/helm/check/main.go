// Renders the chart as helm does, and validates each object against the schema of its Kubernetes version,
// which refuses unknown fields. Prints the rendered objects as a JSON list.
//
//	check CHART SCHEMAS [-values FILE] [-set KEY=VALUE]...
//
// SCHEMAS is a folder with the OpenAPI documents of one version, `…/1.30`, as an API server gives them:
// api/v1.json, apis/apps/v1.json and so on.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

type sets []string

func (s *sets) String() string         { return strings.Join(*s, ",") }
func (s *sets) Set(value string) error { *s = append(*s, value); return nil }

func main() {
	var set sets
	flags := flag.NewFlagSet("check", flag.ExitOnError)
	file := flags.String("values", "", "a file of values")
	flags.Var(&set, "set", "a value, as helm takes it")
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "check CHART SCHEMAS [-values FILE] [-set KEY=VALUE]...")
		os.Exit(2)
	}
	_ = flags.Parse(os.Args[3:])
	schemas := os.Args[2]
	objects, err := render(os.Args[1], *file, set, filepath.Base(schemas))
	if err == nil {
		err = validate(objects, schemas)
	}
	if err == nil {
		err = fit(objects)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(objects)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(folder, file string, set sets, version string) ([]map[string]any, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	given := map[string]any{}
	if file != "" {
		if given, err = chartutil.ReadValuesFile(file); err != nil {
			return nil, err
		}
	}
	for _, one := range set {
		if err := strvals.ParseInto(one, given); err != nil {
			return nil, err
		}
	}
	kubernetes, err := chartutil.ParseKubeVersion("v" + version + ".0")
	if err != nil {
		return nil, err
	}
	able := chartutil.DefaultCapabilities.Copy()
	able.KubeVersion = *kubernetes
	release := chartutil.ReleaseOptions{Name: "gateway", Namespace: "search", Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(chart, given, release, able)
	if err != nil {
		return nil, err
	}
	strict := engine.Engine{Strict: true}
	files, err := strict.Render(chart, values)
	if err != nil {
		return nil, err
	}
	var objects []map[string]any
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for _, manifest := range releaseutil.SplitManifests(text) {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(manifest), &object); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	slices.SortFunc(objects, func(a, b map[string]any) int { return strings.Compare(named(a), named(b)) })
	return objects, nil
}

func named(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	return fmt.Sprintf("%v %v %v", object["apiVersion"], object["kind"], metadata["name"])
}

func validate(objects []map[string]any, schemas string) error {
	var wrong []error
	for _, object := range objects {
		if err := one(object, schemas); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", named(object), err))
		}
	}
	return errors.Join(wrong...)
}

func one(object map[string]any, schemas string) error {
	group, version, named := strings.Cut(fmt.Sprint(object["apiVersion"]), "/")
	if group == "monitoring.coreos.com" {
		// These are the operator's own types, which are not part of Kubernetes.
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		return yaml.UnmarshalStrict(text, &monitoring.ServiceMonitor{})
	}
	path := "apis/" + group + "/" + version
	if !named {
		version, group, path = group, "", "api/"+group
	}
	text, err := os.ReadFile(filepath.Join(schemas, path+".json"))
	if err != nil {
		return err
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	components := all["components"].(map[string]any)
	for _, schema := range components["schemas"].(map[string]any) {
		strict(schema)
	}
	name, err := schemaOf(components["schemas"].(map[string]any), group, version, object["kind"])
	if err != nil {
		return err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7)
	if err := compiler.AddResource("kubernetes.json", all); err != nil {
		return err
	}
	schema, err := compiler.Compile("kubernetes.json#/components/schemas/" + name)
	if err != nil {
		return err
	}
	text, err = json.Marshal(object)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func schemaOf(schemas map[string]any, group, version string, kind any) (string, error) {
	for name, schema := range schemas {
		kinds, _ := schema.(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		for _, one := range kinds {
			one := one.(map[string]any)
			if one["group"] == group && one["version"] == version && one["kind"] == kind {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("there is no kind %v in %s/%s", kind, group, version)
}

// Kubernetes drops unknown fields silently; here they are errors. Only the format says that a value may be a
// number or a text.
func strict(schema any) {
	switch node := schema.(type) {
	case map[string]any:
		_, some := node["properties"].(map[string]any)
		_, open := node["additionalProperties"]
		if some && !open && node["type"] == "object" {
			node["additionalProperties"] = false
		}
		if node["format"] == "int-or-string" {
			delete(node, "type")
		}
		delete(node, "default")
		for _, below := range node {
			strict(below)
		}
	case []any:
		for _, below := range node {
			strict(below)
		}
	}
}
