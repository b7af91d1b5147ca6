package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// noNative is said of what only islet's own runtime has.
const noNative = "containers run in the runtime at containerRuntimeEndpoint, which has its own configuration"

// foreign reports whether an endpoint is that of another runtime than islet's own.
func foreign(endpoint, run string) bool { return endpoint != "" && ownSocket(endpoint, run) == "" }

// nativeFields are without effect while containers run in another runtime.
func nativeFields() []string {
	return []string{"edge.shimPods", "edge.ociRuntime", "edge.runtimeHandlers", "edge.bridgeName", "edge.cniConfDir", "edge.cniBinDirs",
		"edge.registryConfigDir", "edge.imagesDir", "edge.criSocket"}
}

// unused lists the settings of islet's own runtime that were given besides the endpoint
// of another.
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

// remote checks what cannot be together with another runtime, or without one.
func (c *checker) remote() {
	run := filepath.Clean(c.opts.RunDir)
	there := foreign(c.k.ContainerRuntimeEndpoint, run)
	if there && c.edge.NetworkPlugin == "built-in" {
		c.invalid(field.NewPath(EdgeKind, "networkPlugin"), c.edge.NetworkPlugin, "the runtime at containerRuntimeEndpoint (%s) makes its pods' network itself: leave networkPlugin out", c.k.ContainerRuntimeEndpoint)
	}
	if !there && foreign(c.k.ImageServiceEndpoint, run) {
		c.forbidden("imageServiceEndpoint", "islet's own runtime has its images itself: name a containerRuntimeEndpoint too, or leave it out")
	}
}
