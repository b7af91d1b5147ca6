package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// noNative is the reason for settings that have no effect with an external runtime.
const noNative = "containers run in the runtime at containerRuntimeEndpoint, which has its own configuration"

// foreign reports whether an endpoint belongs to an external runtime.
func foreign(endpoint, run string) bool { return endpoint != "" && ownSocket(endpoint, run) == "" }

// nativeFields returns the fields that have no effect with an external runtime.
func nativeFields() []string {
	return []string{"edge.shimPods", "edge.ociRuntime", "edge.runtimeHandlers", "edge.bridgeName", "edge.cniConfDir", "edge.cniBinDirs",
		"edge.registryConfigDir", "edge.imagesDir", "edge.criSocket"}
}

// unused returns a Notice for each setting of islet's own runtime that was given together with an
// external runtime.
func unused(s *settings) (out []Notice) {
	if !foreign(s.ContainerRuntimeEndpoint, filepath.Clean(s.Flags.RunDir)) {
		return nil
	}
	usual := settings{Edge: defaultEdge()}
	for _, path := range nativeFields() {
		given, def := fieldAt(reflect.ValueOf(s).Elem(), path), fieldAt(reflect.ValueOf(&usual).Elem(), path)
		if !reflect.DeepEqual(given.Interface(), def.Interface()) {
			out = append(out, Notice{fmt.Sprintf("%s: %s", EdgeKind, strings.TrimPrefix(path, "edge.")), noNative})
		}
	}
	return out
}

// remote rejects settings that exclude, or need, an external runtime.
func (c *checker) remote() {
	run := filepath.Clean(c.opts.RunDir)
	external := foreign(c.k.ContainerRuntimeEndpoint, run)
	if external && c.edge.NetworkPlugin == "built-in" {
		c.invalid(field.NewPath(EdgeKind, "networkPlugin"), c.edge.NetworkPlugin,
			"the runtime at containerRuntimeEndpoint (%s) sets up its pods' network itself: leave networkPlugin out",
			c.k.ContainerRuntimeEndpoint)
	}
	if !external && foreign(c.k.ImageServiceEndpoint, run) {
		c.forbidden("imageServiceEndpoint",
			"islet's own runtime is also its image service: set containerRuntimeEndpoint too, or leave this out")
	}
}
