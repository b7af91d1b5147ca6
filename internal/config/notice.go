package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// fieldRows returns the descriptions of all fields, by path.
func fieldRows() map[string]fieldRow {
	all := map[string]fieldRow{}
	for _, row := range slices.Concat(kubeletFields(), edgeFields(), optionFields()) {
		all[row.path] = row
	}
	return all
}

// listNotices returns a Notice for each setting that has no effect. A setting is a flag on the
// command line, or a field in a file. If several files set the same field, the Notice names only
// the first of them. A field that is set to its default causes no Notice.
func listNotices(c *Config, fs flagSet, docs []document) []Notice {
	var out []Notice
	known := fieldRows()
	fs.Visit(func(f *pflag.Flag) {
		row, ok := fs.rows[f.Name]
		if why := row.none + known[row.field].none; ok && why != "" {
			out = append(out, Notice{"--" + f.Name, why})
		}
	})
	reported, usual := map[string]bool{}, defaultLeaves()
	for _, doc := range docs {
		tree, err := decodeTree(doc.json)
		if err != nil {
			continue // cannot fail: the file was decoded before
		}
		walkLeaves(tree, "", func(path string, value any, _ any) {
			row, ok := fieldOf(known, path)
			text := fmt.Sprint(value)
			name := row.path
			if gate, ok := strings.CutPrefix(path, "featureGates."); ok {
				if gate == gateAllBeta || slices.Contains(supportedGates(), gate) {
					return // the setting has an effect
				}
				name = path
			}
			if ok && row.none != "" && !reported[name] && text != usual[path] && text != "0" && text != "0s" && text != "<nil>" {
				reported[name] = true
				out = append(out, Notice{fmt.Sprintf("%s: %s", doc.file, name), row.none})
			}
		})
	}
	return out
}

// fieldOf returns the row of the field to which a leaf belongs. Examples of leaves are evictionHard.memory.available
// and registerWithTaints[0].key.
func fieldOf(known map[string]fieldRow, leaf string) (fieldRow, bool) {
	for path := leaf; path != ""; {
		if row, ok := known[path]; ok {
			return row, true
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			break
		}
		path = path[:i]
	}
	return fieldRow{}, false
}

// defaultLeaves returns the default values as text. The key is the path of the field. Fields
// without a default are omitted.
func defaultLeaves() map[string]string {
	c := defaultKubelet()
	setKubeletDefaults(&c)
	leaves := map[string]string{}
	if data, err := json.Marshal(&c); err == nil {
		if tree, err := decodeTree(data); err == nil {
			walkLeaves(tree, "", func(path string, value, _ any) { leaves[path] = fmt.Sprint(value) })
		}
	}
	return leaves
}
