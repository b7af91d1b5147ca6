package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Reference writes the configuration reference, in Markdown, from the tables of
// fields, flags and defaults.
func Reference() string {
	s := settings{KubeletConfiguration: defaultKubelet(), Edge: defaultEdge(), Flags: defaultOptions()}
	setKubeletDefaults(&s.KubeletConfiguration)
	flags := flagsByField()
	var b strings.Builder
	b.WriteString(`# Configuration

New to islet? [Common settings](settings.md) is the shorter page.

This page is generated from the tables in internal/config by
` + "`go test ./internal/config -run TestDocs -update`" + `; a test fails when it is stale.

islet takes the flags and the KubeletConfiguration (` + kubeletAPIVersion + `) of kubelet 1.36, and an
EdgeConfiguration (` + EdgeAPIVersion + `) for what only islet has. A setting earlier in this list wins over a later one:

1. flags; of a flag that is given twice the last one counts, and flags with lists and maps add up,
2. the ` + "`*.conf`" + ` files below ` + "`--config-dir`" + `, in lexical order; later ones win, maps are merged, lists replaced,
3. the file of ` + "`--config`" + ` or ` + "`--edge-config`" + `,
4. the defaults.

Files are decoded strictly: an unknown or duplicate field, a wrong type, apiVersion or kind is an error with file, line
and field. Relative paths in a file are relative to its directory. A field marked "no effect" is accepted and checked,
and islet says so once at its start.

Two agents with different directories do not get in each other's way: with a ` + "`--state-dir`" + ` of your own, pod logs lie in pod-logs below it
and the pods' cgroups in a cgroup of their own, unless podLogsDir and cgroupRoot say otherwise.

Defaults that differ from a kubelet's:

- containerRuntimeEndpoint is empty: the built-in runtime.
- failCgroupV1 is false, as islet runs on cgroup v1.
- failSwapOn is false, with a warning, where nothing sets it and the node has no control plane.
- memory.available of evictionHard is an eighth of the memory (a 32nd below 128Mi), where that is less than 100Mi and
  nothing sets evictionHard.
- On such a machine kubeReserved has 96Mi of memory, but no more than nine tenths of it, where nothing sets evictionHard,
  kubeReserved, systemReserved or reservedMemory.
- Without a configuration file, authentication, authorization and readOnlyPort have the defaults of a file, not the open
  ones of the kubelet's flags.
`)
	section := func(title, prefix string, rows []fieldRow) {
		fmt.Fprintf(&b, "\n## %s\n\n| Field | Flag | Default | What it sets |\n| --- | --- | --- | --- |\n", title)
		for _, row := range rows {
			v := value{field: fieldAt(reflect.ValueOf(&s).Elem(), row.path)}
			what := row.what
			if row.none != "" {
				what += ". *No effect: " + row.none + "*"
			}
			name := strings.TrimPrefix(row.path, prefix)
			if prefix == "flags." {
				name = ""
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, strings.Join(flags[row.path], "<br>"), defaultText(v), what)
		}
	}
	section("Flags that no file has", "flags.", optionFields())
	section("EdgeConfiguration", "edge.", edgeFields())
	section("KubeletConfiguration", "", kubeletFields())
	b.WriteString("\n## What a node keeps as its own\n\nA [configuration that a node is sent](sent-configuration.md) replaces its files, but not these fields: where it leaves one\nout, or has an empty value, the node's own value stays, and it changes one only with consent, by `configuration.consent` of the node's own\nEdgeConfiguration or `islet config apply --consent`. Directories, names, addresses and the way to the API server are flags, which it\ncannot change at all. Everything else it may change, and the node tries it.\n\n| Field | Why |\n| --- | --- |\n")
	for _, f := range Bound() {
		fmt.Fprintf(&b, "| %s | %s |\n", f.Field, f.Why)
	}
	b.WriteString("\nWhoever consents, these change only while the node has no pods:\n\n| Field | What would become of pods |\n| --- | --- |\n")
	for _, f := range HeldByPods() {
		fmt.Fprintf(&b, "| %s | %s |\n", f.Field, f.Why)
	}
	b.WriteString("\n## Flags without effect\n\nThey are accepted, so that a kubelet's command line works as it is.\n\n| Flag | Why |\n| --- | --- |\n")
	for _, row := range flagTable() {
		if row.field == "" {
			fmt.Fprintf(&b, "| --%s | %s |\n", row.name, row.none)
		}
	}
	return b.String()
}

func flagsByField() map[string][]string {
	by := map[string][]string{}
	for _, row := range flagTable() {
		if row.field != "" {
			by[row.field] = append(by[row.field], "--"+row.name)
		}
	}
	return by
}

func defaultText(v value) string {
	if f := v.field; f.Kind() == reflect.Map && f.Type().Elem().Kind() == reflect.String {
		var pairs []string
		m, _ := f.Interface().(map[string]string)
		for _, k := range slices.Sorted(maps.Keys(m)) {
			pairs = append(pairs, k+": "+m[k])
		}
		return strings.Join(pairs, "<br>")
	}
	if v.field.Kind() == reflect.Struct && durationIn(v.field) == nil {
		return ""
	}
	return strings.Trim(v.String(), "[]")
}
