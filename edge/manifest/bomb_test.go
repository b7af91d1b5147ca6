package manifest_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/keys"
)

// TestBombs checks that a manifest that would use much memory is rejected before the memory is used.
func TestBombs(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":`
	for name, text := range map[string]string{
		"null containers":  pod + `{"containers":[` + strings.Repeat("null,", 500_000) + `null]}}`,
		"null tolerations": pod + `{"containers":[{"name":"c","image":"i"}],"tolerations":[` + strings.Repeat("null,", 500_000) + `null]}}`,
		"tolerations":      `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"scheduler.alpha.kubernetes.io/tolerations":"[` + strings.Repeat("null,", 500_000) + `null]"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		"names of fields":  pod + `{"nodeSelector":{` + strings.Repeat(`"":"",`, 400_000) + `"":""}}}`,
		"pods of nothing":  `{"apiVersion":"v1","kind":"PodList","items":[` + strings.Repeat("null,", 500_000) + `null]}`,
		"YAML nodes":       "a: [" + strings.Repeat("x,", 500_000) + "]\n",
		"YAML objects":     "a: [" + strings.Repeat("{},", 300_000) + "]\n",
		"YAML lines":       "a:\n" + strings.Repeat("- \n", 300_000),
		"YAML documents":   strings.Repeat("---\n{}\n", 3<<20/7),
		"JSON documents":   strings.Repeat("{}", 3<<20/2),
		"long names":       pod + `{"` + strings.Repeat("x", 2<<20) + `":1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			limit := uint64(64 << 20)
			if strings.HasSuffix(name, " documents") {
				limit = 8 << 20 // the text, and no list of 500,000 documents
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := manifest.Decode([]byte(text), manifest.Options{Origin: "bomb", Source: keys.SourceFile, Lists: true})
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > limit {
				t.Errorf("got %.200v with %d MiB", err, took>>20)
			}
		})
	}
}
