// Package hostile generates manifests that must not harm an agent: random bytes, randomly changed
// pods, texts that become large when they are decoded, and manifests that claim the name or
// directory of another pod.
//
//	pods.json -> Mutator -> Manifests -> Write -> a manifest directory
//
// The manifests depend only on the seed. Many of them are valid pods. The image of these pods does
// not exist and must not be pulled, so the pods never run. They count against the node's limits.
package hostile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Manifest is a file of a manifest directory.
type Manifest struct {
	Name string // the name of the file
	Kind string // the kind of the fault, for messages
	Data []byte
}

// Options select the manifests to generate.
type Options struct {
	Seed  uint64
	Count int
	// Victim is the name of a pod from another manifest, which the test writes. Some generated manifests claim the name or the
	// directory of this pod. If Victim is empty, there are no such manifests.
	Victim string
}

// Manifests generates Count manifests, the same number of each kind.
func Manifests(o Options) []Manifest {
	w := &writer{r: rand.New(rand.NewPCG(o.Seed, 0)), mutator: NewMutator(), victim: o.Victim}
	kinds := []struct {
		name string
		make func() []byte
	}{
		{"random bytes", w.randomBytes},
		{"random words", w.randomWords},
		{"changed pod as JSON", func() []byte { return toJSON(w.changed()) }},
		{"changed pod as YAML", func() []byte { return toYAML(w.changed()) }},
		{"damaged text", w.damagedPod},
		{"bomb", w.bomb},
		{"foreign", w.foreign},
		{"another pod's", w.thief},
	}
	if o.Victim == "" {
		kinds = kinds[:len(kinds)-1]
	}
	all := make([]Manifest, o.Count)
	for i := range all {
		kind := kinds[i%len(kinds)]
		all[i] = Manifest{Name: w.fileName(i), Kind: kind.name, Data: kind.make()}
	}
	return all
}

// Write writes manifests to a directory. Like some editors, it does not write atomically.
func Write(dir string, all []Manifest) error {
	for _, m := range all {
		if err := os.WriteFile(filepath.Join(dir, m.Name), m.Data, 0o644); err != nil {
			return fmt.Errorf("write hostile manifest: %w", err)
		}
	}
	return nil
}

type writer struct {
	r       *rand.Rand
	mutator *Mutator
	victim  string
	pods    int
}

// fileName returns a file name. Some of the names are unusual. A number makes each name unique.
func (w *writer) fileName(i int) string {
	forms := []string{"%03d.yaml", "%03d.yaml", "%03d.yaml", "%03d.json", "%03d", ".%03d.yaml", "%03d.yaml~", "ä %03d.yaml",
		"-%03d.yml", "\x1b[2J%03d.yaml", "a\nb%03d.yaml",
		strings.Repeat("long-", 45) + "%03d.yaml"}
	return fmt.Sprintf(forms[w.r.IntN(len(forms))], i)
}

// pod returns a pod with the given number of changes. It usually makes the name unique.
func (w *writer) pod(changes int) map[string]any {
	pod := w.mutator.Pod(w.r, changes)
	if meta, ok := pod["metadata"].(map[string]any); ok {
		if _, named := meta["name"].(string); named && w.r.IntN(8) > 0 {
			w.pods++
			meta["name"] = fmt.Sprintf("hostile-%d", w.pods)
		}
	}
	return pod
}

func (w *writer) changed() any { return w.pod(1 + w.r.IntN(4)) }

func (w *writer) randomBytes() []byte {
	data := make([]byte, w.r.IntN(4096))
	for i := range data {
		data[i] = byte(w.r.Uint32())
	}
	return data
}

func (w *writer) randomWords() []byte {
	words := []string{"apiVersion", "kind", "metadata", "spec", "containers", "name", "image", "v1", "Pod", "List", ": ", ":", "- ",
		"\n", "\n  ", "\n\t", "{", "}", "[", "]",
		",", "\"", "'", "|", ">", "&a ", "*a", "!!binary ", "!!int ", "<<: ", "? ", "---\n", "...\n", "%YAML 1.1\n", "#", "~", "0x1F",
		"1_000", "1e999", ".inf", "2001-01-01", "\\u0000"}
	var b strings.Builder
	for range w.r.IntN(300) {
		b.WriteString(words[w.r.IntN(len(words))])
	}
	return []byte(b.String())
}

// damagedPod returns the text of a pod with a part removed, added or repeated.
func (w *writer) damagedPod() []byte {
	data := toYAML(w.pod(0))
	if w.r.IntN(3) == 0 {
		data = toJSON(w.pod(0))
	}
	for range 1 + w.r.IntN(3) {
		if len(data) == 0 {
			break
		}
		from := w.r.IntN(len(data))
		to := from + w.r.IntN(min(40, len(data)-from))
		switch w.r.IntN(6) {
		case 0: // half written
			data = data[:from]
		case 1:
			data[from] ^= 1 << w.r.IntN(8)
		case 2:
			data = append(data[:from:from], data[to:]...)
		case 3: // repeat a part
			data = append(data[:to:to], data[from:]...)
		case 4:
			extra := []string{"\t", "\n", "\x00", "\xff\xfe", ":", " ", "\"", "\n---\n", "\u2028", "0"}
			data = append(data[:from:from], append([]byte(extra[w.r.IntN(len(extra))]), data[from:]...)...)
		case 5: // repeat the whole text, so that every key is a duplicate
			data = append(data[:len(data):len(data)], data...)
		}
	}
	return data
}

// bomb returns a text whose decoding takes much more memory or time than its size suggests.
func (w *writer) bomb() []byte {
	switch w.r.IntN(9) {
	case 0: // billion laughs
		var b strings.Builder
		b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
		for i := 1; i < 10; i++ {
			fmt.Fprintf(&b, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
		}
		return []byte(b.String())
	case 1: // aliases that repeat one long text
		return []byte("a: &a \"" + strings.Repeat("x", 1<<17) + "\"\nb: [" + strings.Repeat("*a,", 1<<15) + "]\n")
	case 2:
		return []byte(strings.Repeat("[", 100_000))
	case 3:
		return []byte(strings.Repeat(`{"a":`, 100_000))
	case 4:
		return []byte(strings.Repeat("- ", 50_000))
	case 5:
		return []byte(strings.Repeat("---\na: b\n", 50_000))
	case 6:
		return []byte("a: [" + strings.Repeat("{},", 300_000) + "]")
	case 7: // larger than any limit
		return []byte(`{"a":"` + strings.Repeat("x", 4<<20) + `"}`)
	default: // one pod with very many containers
		pod := w.pod(0)
		spec := pod["spec"].(map[string]any)
		first := spec["containers"].([]any)[0]
		many := make([]any, 2000)
		for i := range many {
			many[i] = first
		}
		spec["containers"] = many
		return toJSON(pod)
	}
}

// foreign returns a text that is not a single pod.
func (w *writer) foreign() []byte {
	pod := string(toJSON(w.pod(0)))
	texts := []string{
		"", "\n", "# nothing\n", "---\n---\n", "null", "true", "42", "hello", "[]", "{}", "\ufeff", "\ufeff" + pod, "\xff\xfe{\x00}\x00",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\n",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {}\n",
		`{"apiVersion":"v1","kind":"PodList","items":[` + pod + `,` + pod + `]}`,
		`{"apiVersion":"v1","kind":"List","items":[null,1,` + pod + `]}`,
		pod + "\n" + pod, "---\n" + pod + "\n---\n" + pod, strings.Replace(pod, `"v1"`, `"v2"`, 1),
		strings.Replace(pod, `"Pod"`, `"pod"`, 1),
		"#!/bin/sh\nrm -rf /\n", "\x7fELF\x02\x01\x01\x00", "\x1f\x8b\x08\x00\x00", "PK\x03\x04",
		"<html><body>502 Bad Gateway</body></html>", "{{ .Values.pod }}", "$(cat /etc/shadow)",
	}
	return []byte(texts[w.r.IntN(len(texts))])
}

// thief returns a pod that claims the name or the directory of another pod.
func (w *writer) thief() []byte {
	pod := w.mutator.Pod(w.r, w.r.IntN(3))
	meta := map[string]any{"name": w.victim, "namespace": "default"}
	switch w.r.IntN(6) {
	case 0: // exactly the same name
	case 1:
		meta["name"] = strings.ToUpper(w.victim)
	case 2:
		meta["name"] = "../" + w.victim
	case 3:
		meta["uid"] = "../../../../tmp"
	case 4:
		meta["annotations"] = map[string]any{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "api",
			"kubernetes.io/config.hash": "y"}
	default: // a pod that is already being deleted
		meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = "2001-01-01T00:00:00Z", 0
	}
	pod["metadata"] = meta
	if w.r.IntN(2) == 0 {
		return toYAML(pod)
	}
	return toJSON(pod)
}
