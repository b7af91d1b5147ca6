package inputweight_test

import (
	"errors"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/islet-edge/islet/internal/inputweight"
)

// TestYAML checks that no accepted text takes much more memory than the limit. Ordinary manifests are far below the limit.
func TestYAML(t *testing.T) {
	const most = 16 * mib
	for name, unit := range map[string]string{
		"flow sequence": "a,", "flow objects": "{},", "arrays": "[],", "lines": "- a\n", "empty lines": "-\n", "keys": "? a\n", "nulls": ",",
	} {
		for n := 1000; n <= mib/len(unit); n *= 4 {
			text := strings.Repeat(unit, n)
			if !strings.Contains(unit, "\n") {
				text = "a: [" + text + "]"
			}
			data := []byte(text)
			err := inputweight.YAML(data, most)
			if err == nil {
				var tree any
				if took := allocated(func() { _ = yaml.Unmarshal(data, &tree) }); took > 4*most {
					t.Errorf("%s: %d of them pass, and take %d MiB", name, n, took/mib)
				}
			} else if !errors.Is(err, inputweight.ErrTooHeavy) || n < 4000 {
				t.Errorf("%s: %d: %v", name, n, err)
			}
		}
	}
	plain := "data:\n  text: |\n" + strings.Repeat("    a line of text that has some words, and more\n", 20_000)
	if err := inputweight.YAML([]byte(plain), most); err != nil {
		t.Errorf("a megabyte of text: %v", err)
	}
	if n := inputweight.Aliases([]byte("a: *b\nc: [*d,*e, 2*3, \"*.go\"]\n- *f")); n != 4 {
		t.Errorf("%d aliases", n)
	}
}

// TestYAMLOfATable checks that the commas of a table in a ConfigMap do not count as nodes. The commas of a flow collection count,
// wherever the collection begins.
func TestYAMLOfATable(t *testing.T) {
	table := "data:\n  a.csv: |\n" + strings.Repeat("    1,2,3,4,5,6,7,8,9\n", 40_000)
	if err := inputweight.YAML([]byte(table), 32<<20); err != nil {
		t.Errorf("a table: %v", err)
	}
	for _, open := range []string{"[", "{", "a: [", "- {"} {
		if err := inputweight.YAML([]byte(open+strings.Repeat("1,", 200_000)), 32<<20); !errors.Is(err, inputweight.ErrTooHeavy) {
			t.Errorf("%q and 200,000 commas: %v", open, err)
		}
	}
}
