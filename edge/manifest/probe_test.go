package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/keys"
)

// TestProtocolsOfProbes checks that the protocol of an HTTP probe and the mode of a gRPC probe are validated like in Kubernetes.
func TestProtocolsOfProbes(t *testing.T) {
	for probe, want := range map[string]string{
		`httpGet: {port: 80, protocol: HTTP2}`:                  "",
		`httpGet: {port: 80, protocol: HTTP1, scheme: HTTPS}`:   "",
		`httpGet: {port: 80, protocol: HTTP3}`:                  "httpGet.protocol",
		`httpGet: {port: 80, protocol: HTTP2, scheme: HTTPS}`:   "httpGet.protocol",
		`httpGet: {port: 80, protocol: HTTP2, host: 192.0.2.1}`: "httpGet.host",
		`grpc: {port: 80, mode: TLS}`:                           "",
		`grpc: {port: 80, mode: Plaintext}`:                     "",
		`grpc: {port: 80, mode: tls}`:                           "grpc.mode",
	} {
		pod := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: default}\nspec:\n  containers:\n"+
			"  - name: a\n    image: i\n    livenessProbe: {%s}\n", probe)
		_, err := Decode([]byte(pod), Options{Source: keys.SourceFile, Origin: "a.yaml", NodeName: "n"})
		var fields []string
		for _, e := range ErrorsIn(err) {
			fields = append(fields, strings.TrimPrefix(e.Field, "spec.containers[0].livenessProbe."))
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("%s: rejected fields %q, not %q: %v", probe, got, want, err)
		}
	}
}
