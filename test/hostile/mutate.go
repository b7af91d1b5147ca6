package hostile

import (
	_ "embed"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
)

//go:embed pods.json
var podsJSON []byte

// Mutator changes valid pods at random places. Most of the results are still similar to pods, and
// many are invalid only in a detail.
type Mutator struct {
	pods   []any
	donors map[string][]any // the values that a field has in the built-in pods; the key is the field's path without indexes
	keys   map[string][]string
}

// NewMutator reads the built-in pods, which together set almost every field of a pod.
func NewMutator() *Mutator {
	m := &Mutator{donors: map[string][]any{}, keys: map[string][]string{}}
	if err := json.Unmarshal(podsJSON, &m.pods); err != nil {
		panic("pods.json: " + err.Error())
	}
	for _, pod := range m.pods {
		m.learn("", pod)
	}
	return m
}

func (m *Mutator) learn(path string, v any) {
	m.donors[path] = append(m.donors[path], v)
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sorted(v) {
			if !slices.Contains(m.keys[path], key) {
				m.keys[path] = append(m.keys[path], key)
			}
			m.learn(path+"."+key, v[key])
		}
	case []any:
		for _, item := range v {
			m.learn(path+"[]", item)
		}
	}
}

// Pod picks one of the pods and changes it the given number of times.
func (m *Mutator) Pod(r *rand.Rand, changes int) map[string]any {
	pod := clone(m.pods[r.IntN(len(m.pods))])
	for range changes {
		places := collect(nil, "", pod)
		if len(places) == 0 {
			break
		}
		m.change(r, places[r.IntN(len(places))])
	}
	return pod.(map[string]any)
}

// A location is a member of an object, or an item of a list. It contains the path of the value, and
// functions that set or remove the value.
type location struct {
	path  string
	value any
	set   func(any)
	drop  func()
}

func collect(places []location, path string, v any) []location {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sorted(v) {
			places = append(places, location{path + "." + key, v[key], func(n any) { v[key] = n }, func() { delete(v, key) }})
			places = collect(places, path+"."+key, v[key])
		}
	case []any:
		for i := range v {
			places = append(places, location{path + "[]", v[i], func(n any) { v[i] = n }, func() { v[i] = clone(v[0]) }})
			places = collect(places, path+"[]", v[i])
		}
	}
	return places
}

func (m *Mutator) change(r *rand.Rand, at location) {
	switch v := at.value.(type) {
	case map[string]any:
		keys := m.keys[at.path]
		if len(keys) > 0 && r.IntN(4) > 0 { // a field that another pod has at this place
			key := keys[r.IntN(len(keys))]
			v[key] = m.donor(r, at.path+"."+key)
			return
		}
	case []any:
		if r.IntN(2) == 0 {
			at.set(append(slices.Clone(v), m.donor(r, at.path+"[]")))
			return
		}
		if len(v) > 1 {
			at.set(v[:r.IntN(len(v))])
			return
		}
	case string:
		if r.IntN(5) > 0 {
			at.set(m.text(r, at.path))
			return
		}
	case float64:
		if r.IntN(5) > 0 {
			at.set(numbers[r.IntN(len(numbers))])
			return
		}
	case bool:
		at.set(!v)
		return
	}
	switch r.IntN(6) {
	case 0, 1, 2:
		at.set(m.donor(r, at.path))
	case 3, 4:
		at.drop()
	default:
		at.set([]any{nil, "", 0.0, true, []any{}, map[string]any{}}[r.IntN(6)])
	}
}

func (m *Mutator) donor(r *rand.Rand, path string) any {
	if all := m.donors[path]; len(all) > 0 {
		return clone(all[r.IntN(len(all))])
	}
	return nil
}

func (m *Mutator) text(r *rand.Rand, path string) any {
	if r.IntN(3) == 0 || strings.HasSuffix(path, ".hostPath.path") { // so that the pod does not write to the host
		return m.donor(r, path)
	}
	return texts[r.IntN(len(texts))]
}

// The lists texts and numbers contain boundary values of validation rules.
var texts = []string{
	"", "a", "A", "a.b", "a_b", "-a", "a-", "a:b", "a b", " a", "ä", "\x00", "\u202e", strings.Repeat("a", 63), strings.Repeat("a", 64),
	strings.Repeat("a.", 127) + "b", strings.Repeat("x", 300), "..", "../a", "a/../b", "..data", "/a", "/a/../b", "/", ".", "a/b", "a//b",
	"example.com/a", "requests.example.com/a", "kubernetes.io/a", "cpu", "memory", "hugepages-2Mi", "hugepages-x", "storage",
	"10.0.0.1", "010.0.0.1", "::1", "fe80::1%eth0", "::ffff:1.2.3.4", "1.2.3", "0", "1", "-1", "0.5", "100m", "1500m", "1Gi", "3Mi",
	"2Mi", "1e3", "1Ki1",
	"99999999999999999999", "0.0001", "Always", "Never", "OnFailure", "IfNotPresent", "None", "Default", "ClusterFirst", "Localhost",
	"RuntimeDefault",
	"Unconfined", "Unmasked", "Exists", "Equal", "DoesNotExist", "In", "NotIn", "Gt", "Lt", "NoExecute", "NoSchedule", "TCP", "UDP", "SCTP",
	"HTTPS", "File", "Directory", "Memory", "HugePages", "Bidirectional", "HostToContainer", "Enabled", "linux", "windows", "SIGTERM",
	"SIGRTMIN+3",
	"SIGBOGUS", "metadata.name", "metadata.labels['a']", "metadata.labels['a b']", "metadata.annotations['A/b']", "metadata.labels",
	"status.podIP", "spec.host", "limits.cpu", "limits.memory", "requests.hugepages-2Mi", "net.ipv4.ip_forward", "kernel.shmmax",
	"kernel/shmmax", "fs.mqueue.queues_max", "CAP_SYS_ADMIN", "localhost/a", "runtime/default", "true", "null", "~", "$(A)", "{{", "%n",
}

var numbers = []float64{0, 1, -1, 2, 5, 30, 31, 80, 100, 101, 255, 256, 420, 511, 512, 599, 600, 3600, 65535, 65536, 2147483647,
	2147483648, -2147483648, 4294967296, 4294967297, 0.5}

func sorted(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for key, member := range v {
			c[key] = clone(member)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, item := range v {
			c[i] = clone(item)
		}
		return c
	}
	return v
}
