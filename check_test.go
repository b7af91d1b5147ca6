package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/finding"
)

// TestCheckOfRealTime checks that a pod with real time is compared with the EdgeConfiguration among the checked files, in any order.
func TestCheckOfRealTime(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: plc, annotations: {scheduler.islet.dev/c: FIFO priority=20}}\n" +
		"spec:\n  containers:\n  - {name: c, image: 'web:1'}\n"
	const node = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nrealTime:\n  pods:\n" +
		"  - {namespaces: [default], sources: [local], policies: [FIFO], maxPriority: %d}\n"
	const kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for name, c := range map[string]struct{ configuration, want string }{
		"none":    {kubelet, "default settings of a node: RealTimeForbidden"},
		"too low": {fmt.Sprintf(node, 10), "settings that were checked: RealTimeForbidden: annotation scheduler.islet.dev/c: priority 20 is higher"},
		"allowed": {fmt.Sprintf(node, 20), ""},
		"both":    {kubelet + "---\n" + fmt.Sprintf(node, 20), ""},
		"invalid": {fmt.Sprintf(node, 1000), "default settings of a node: RealTimeForbidden"},
	} {
		files := []finding.File{{Name: "pod", Data: []byte(pod)}, {Name: "node", Data: []byte(c.configuration)}}
		for range files {
			slices.Reverse(files)
			got := ""
			for _, f := range checkFiles(files, nil).Findings {
				if f.File == "pod" {
					got += f.Message
				}
			}
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
			}
		}
	}
}

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
