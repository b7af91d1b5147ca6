package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/finding"
)

// TestCheckOfUnsupported checks that each finding of a node's admission is reported with its field. Nothing is reported if the result
// depends on the node.
func TestCheckOfUnsupported(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: web, image: web:1}\n"
	for more, want := range map[string]string{
		"":                              "",
		"  nodeSelector: {disk: ssd}\n": "",
		"  nodeSelector: {kubernetes.io/arch: arm64}\n": "",
		"  nodeName: pi\n":                      "",
		"  tolerations: [{operator: Exists}]\n": "",
		"  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}\n": "",
		"  nodeSelector: {kubernetes.io/os: windows}\n":                       "7 error : is rejected with the default settings of a node: PodOSSelector",
		"  securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}\n": "7 warning spec.securityContext.sysctls: is rejected with the default settings of a node: SysctlForbidden",
		"  volumes: [{name: a, emptyDir: {mode: 448}}]\n":                     "7 warning spec.volumes[0].emptyDir.mode: does not act",
	} {
		got := ""
		for _, f := range checkFiles([]finding.File{{Name: "a", Data: []byte(pod + more)}}, nil).Findings {
			got += fmt.Sprintf("%d %s %s: %s", f.Line, f.Severity, f.Field, f.Message)
		}
		if (got == "") != (want == "") || !strings.HasPrefix(got, strings.Replace(want, "7 error", "1 error", 1)) {
			t.Errorf("%q: got %q, want %q", more, got, want)
		}
		if r := checkFiles([]finding.File{{Name: "a", Data: []byte(pod + more)}}, &finding.Node{}); r.Errors > 0 || r.Warnings != 1 { // the image
			t.Errorf("a dry run of %q, which the node checks itself: %v", more, r.Findings)
		}
	}
}
