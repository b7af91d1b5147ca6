package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Reference returns docs/configuration.md, in Markdown, from the tables of fields, flags and
// defaults.
func Reference() string {
	s := settings{KubeletConfiguration: defaultKubelet(), Edge: defaultEdge(), Flags: defaultOptions()}
	setKubeletDefaults(&s.KubeletConfiguration)
	flags := flagsByField()
	var b strings.Builder
	b.WriteString(`# Configuration

New to islet? [Common settings](settings.md) is the shorter page.

This page is generated from the tables in internal/config by
` + "`go test ./internal/config -run TestDocs -update`" + `; a test fails when it is stale.

islet takes the flags and the KubeletConfiguration (` + kubeletAPIVersion + `) of kubelet 1.37, and an
EdgeConfiguration (` + EdgeAPIVersion + `) for islet's own settings. In this list, later sources override earlier ones:

1. the defaults,
2. the file of ` + "`--config`" + ` or ` + "`--edge-config`" + `,
3. the ` + "`*.conf`" + ` files below ` + "`--config-dir`" + `, in lexical order; later ones override earlier ones,
	maps are merged, lists replaced,
4. flags; if a flag is given twice the last one counts, but lists and maps are merged; the flags in ` + "`/etc/islet/flags`" + ` come
	before the flags of the command line.

Files are decoded strictly: an unknown or duplicate field, a wrong type, apiVersion or kind is an error with file, line
and field. Relative paths in a file are relative to its directory. A field marked "no effect" is accepted and
validated, and islet logs once at its start that it has no effect.

Two agents with different directories do not interfere: with a non-default ` + "`--state-dir`" + `, pod logs are in pod-logs in it
and the pods' cgroups are in a cgroup of their own, unless podLogsDir and cgroupRoot are set. With a non-default ` + "`--run-dir`" + ` the
agent sets no kernel parameters.

Defaults that differ from a kubelet's:

- containerRuntimeEndpoint is empty: the built-in runtime.
- failCgroupV1 is false, because islet supports cgroup v1.
- failSwapOn is false on a node without a control plane; islet warns if swap is on.
- On a machine with less than 800Mi of memory, memory.available of evictionHard is an eighth of the memory (below 128Mi:
  a 32nd), instead of 100Mi.
- On such a machine kubeReserved is also 96Mi of memory (at most nine tenths of it), unless evictionHard, kubeReserved,
  systemReserved or reservedMemory is set.
- Without a configuration file, authentication, authorization and readOnlyPort have the defaults of a file, not the
  insecure defaults of the kubelet's flags.
`)
	section := func(title, prefix string, rows []fieldRow) {
		fmt.Fprintf(&b, "\n## %s\n\n| Field | Flag | Default | What it sets |\n| --- | --- | --- | --- |\n", title)
		for _, row := range rows {
			v := flagValue{field: fieldAt(reflect.ValueOf(&s).Elem(), row.path)}
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
	b.WriteString(`
## What a node keeps as its own

A [configuration that is sent to the node](sent-configuration.md) replaces the node's files, except for these fields. If such a
field is missing or empty, the node's own value stays. A sent configuration can change such a field only with consent, by
` + "`configuration.consent`" + ` of the node's own EdgeConfiguration or ` + "`islet config apply --consent`" + `.
It cannot change settings that are flags: directories, names, addresses and the access to the API server.
It may change all other fields, in a trial.

| Field | Why |
| --- | --- |
`)
	for _, f := range BoundFields() {
		fmt.Fprintf(&b, "| %s | %s |\n", f.Field, f.Why)
	}
	b.WriteString("\nEven with consent, these change only while the node has no pods:\n\n" +
		"| Field | What would happen to the pods |\n| --- | --- |\n")
	for _, f := range HeldByPods() {
		fmt.Fprintf(&b, "| %s | %s |\n", f.Field, f.Why)
	}
	b.WriteString("\n## Flags without effect\n\n" +
		"They are accepted, so that a kubelet's command line works unchanged.\n\n| Flag | Why |\n| --- | --- |\n")
	for _, row := range flagTable() {
		if row.field == "" {
			fmt.Fprintf(&b, "| --%s | %s |\n", row.name, row.none)
		}
	}
	return b.String()
}

// FieldNames returns the names of all fields of a KubeletConfiguration, and the names of an EdgeConfiguration's fields with "edge." before
// them.
func FieldNames() (names []string) {
	for _, row := range append(kubeletFields(), edgeFields()...) {
		names = append(names, row.path)
	}
	return names
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

func defaultText(v flagValue) string {
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
