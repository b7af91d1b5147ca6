package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// noNative is the reason why settings of islet's own runtime have no effect with an external
// runtime.
const noNative = "containers run in the runtime at containerRuntimeEndpoint, which has its own configuration"

// isExternal reports whether an endpoint belongs to an external runtime.
func isExternal(endpoint, run string) bool {
	return endpoint != "" && socketInRunDir(endpoint, run) == ""
}

// nativeFields returns the fields that have no effect with an external runtime.
func nativeFields() []string {
	return []string{"edge.shimPods", "edge.ociRuntime", "edge.runtimeHandlers", "edge.bridgeName", "edge.cniConfDir", "edge.cniBinDirs",
		"edge.registryConfigDir", "edge.imagesDir", "edge.criSocket", "edge.realTime.pods",
		"edge.bundle.keys", "edge.bundle.medium.label", "edge.bundle.source"}
}

// unusedNotices returns a Notice for each setting of islet's own runtime that is set although the
// runtime is external.
func unusedNotices(s *settings) (out []Notice) {
	if !isExternal(s.ContainerRuntimeEndpoint, filepath.Clean(s.Flags.RunDir)) {
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

// checkRemote rejects settings that the configured runtime does not support. An external runtime does not support the
// built-in network of islet. islet's own runtime does not support an image service of another runtime.
func (c *checker) checkRemote() {
	run := filepath.Clean(c.opts.RunDir)
	external := isExternal(c.k.ContainerRuntimeEndpoint, run)
	if external && c.edge.NetworkPlugin == "built-in" {
		c.addInvalid(field.NewPath(EdgeKind, "networkPlugin"), c.edge.NetworkPlugin,
			"the runtime at containerRuntimeEndpoint (%s) sets up its pods' network itself: leave networkPlugin out",
			c.k.ContainerRuntimeEndpoint)
	}
	if !external && isExternal(c.k.ImageServiceEndpoint, run) {
		c.addForbidden("imageServiceEndpoint",
			"islet's own runtime is also its image service: set containerRuntimeEndpoint too, or leave this out")
	}
}
