package topology

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestMergeAsUpstream compares merged hints with those of a kubelet. test/cluster/upstream has recorded them.
func TestMergeAsUpstream(t *testing.T) {
	data, err := os.ReadFile("../cpumanager/testdata/upstream.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Merge []struct {
			Policy           string
			Closest          bool
			Distances        [][]uint64
			Hints            [][][2]uint64
			Nodes            Mask
			Preferred, Admit bool
		}
	}
	if err := json.Unmarshal(data, &all); err != nil || len(all.Merge) < 100 {
		t.Fatal(len(all.Merge), err)
	}
	for i, c := range all.Merge {
		var m Machine
		for id, row := range c.Distances {
			m.Nodes = append(m.Nodes, Node{ID: id, Distances: row})
		}
		p, err := NewPolicy(c.Policy, Options{PreferClosest: c.Closest, MaxNodes: defaultMaxNodes}, m)
		if err != nil {
			t.Fatal(err)
		}
		var list []Hints
		for _, row := range c.Hints {
			if row == nil {
				list = append(list, nil)
				continue
			}
			hints := []Hint{}
			for _, h := range row {
				hints = append(hints, Hint{Mask(h[0]), h[1] == 1})
			}
			list = append(list, Hints{"r": hints})
		}
		if h, admit := p.Merge(list); h != (Hint{c.Nodes, c.Preferred}) || admit != c.Admit {
			t.Errorf("case %d: %+v: got %b %t %t", i, c, h.Nodes, h.Preferred, admit)
		}
	}
}

func sys(files map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range files {
		out["devices/system/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return out
}

func TestRead(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  Machine
		fails string
	}{
		"one CPU, no nodes": {map[string]string{"cpu/online": "0"}, Machine{CPUs{0: {}}, []Node{{Memory: 1 << 30, Distances: []uint64{10}}}}, ""},
		"negative package": {map[string]string{"cpu/online": "0", "cpu/cpu0/topology/physical_package_id": "-1"},
			Machine{CPUs{0: {}}, []Node{{Memory: 1 << 30, Distances: []uint64{10}}}}, ""},
		"hybrid with one off": {map[string]string{"cpu/online": "0-1,3", "cpu/cpu0/topology/core_cpus_list": "0-1", "cpu/cpu1/topology/core_cpus_list": "0-1", "cpu/cpu3/topology/core_cpus_list": "2-3",
			"cpu/cpu3/cache/index3/level": "3", "cpu/cpu3/cache/index3/id": "7"},
			Machine{CPUs{0: {}, 1: {}, 3: {Core: 3, Cache: 7}}, []Node{{Memory: 1 << 30, Distances: []uint64{10}}}}, ""},
		"nodes with a hole": {map[string]string{"cpu/online": "0-3", "cpu/cpu2/topology/physical_package_id": "1", "cpu/cpu3/topology/physical_package_id": "1",
			"node/online": "0,2-3", "node/node0/cpulist": "0-1", "node/node2/cpulist": "2,9", "node/node3/cpulist": "",
			"node/node0/meminfo": "Node 0 MemTotal:  1024 kB", "node/node2/meminfo": "x\nNode 2 MemTotal: 2048 kB", "node/node3/meminfo": "Node 3 MemTotal: 4096 kB",
			"node/node0/distance": "10 20 20", "node/node2/distance": "20 10 x", "node/node3/distance": "10 20",
			"node/node0/hugepages/hugepages-2048kB/nr_hugepages": "3", "node/node0/hugepages/junk/nr_hugepages": "3"},
			Machine{CPUs{0: {}, 1: {Core: 1}, 2: {Core: 2, Socket: 1, Node: 2, Cache: 1}, 3: {Core: 3, Socket: 1, Cache: 1}},
				[]Node{{ID: 0, Memory: 1 << 20, HugePages: map[uint64]uint64{2 << 20: 6 << 20}, Distances: []uint64{10, 20, 20}}, {ID: 2, Memory: 2 << 20}, {ID: 3, Memory: 4 << 20}}}, ""},
		"none is on":     {map[string]string{"cpu/online": ""}, Machine{}, "there are none"},
		"no list":        {map[string]string{"cpu/online": "0-99999999999"}, Machine{}, "not a list of numbers"},
		"missing":        {map[string]string{}, Machine{}, "not exist"},
		"too many nodes": {map[string]string{"cpu/online": "0", "node/online": "64"}, Machine{}, "below 64"},
		"no memory":      {map[string]string{"cpu/online": "0", "node/online": "0"}, Machine{}, "memory of NUMA node 0"},
	} {
		got, err := Read(sys(tt.files), 1<<30, nil)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for i := range got.Nodes {
			if len(got.Nodes[i].HugePages) == 0 {
				got.Nodes[i].HugePages = nil
			}
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, not %+v: %v", name, got, tt.want, err)
		}
	}
}

// TestReadHere checks that Read succeeds with the topology of this machine.
func TestReadHere(t *testing.T) {
	m, err := Read(os.DirFS("/sys"), 1<<30, nil)
	if err != nil || len(m.CPUs) == 0 || len(m.Nodes) == 0 || m.Nodes[0].Memory == 0 {
		t.Errorf("%+v: %v", m, err)
	}
}

// FuzzRead checks that Read returns an error or a valid machine for any content of the files in /sys. All CPUs of a valid machine are on
// existing nodes.
func FuzzRead(f *testing.F) {
	f.Add("0-3", "0-1", "0-1", "2-3", "Node 0 MemTotal: 1 kB", "10 20", "3")
	f.Add("0,2", "0,5", "0-9", "", "MemTotal:", "", "-1")
	f.Fuzz(func(t *testing.T, online, nodes, first, second, memory, distance, id string) {
		m, err := Read(sys(map[string]string{"cpu/online": online, "node/online": nodes, "node/node0/cpulist": first, "node/node1/cpulist": second, "node/node0/meminfo": memory, "node/node1/meminfo": memory,
			"node/node0/distance": distance, "cpu/cpu0/topology/physical_package_id": id, "cpu/cpu1/topology/core_cpus_list": first, "cpu/cpu0/cache/index3/level": "3", "cpu/cpu0/cache/index3/id": id}), 1, nil)
		if err != nil {
			return
		}
		for cpu, at := range m.CPUs {
			if !slices.Contains(m.IDs(), at.Node) || at.Core > cpu || at.Socket < 0 || at.Cache < 0 {
				t.Errorf("CPU %d is at %+v of %v", cpu, at, m.IDs())
			}
			if _, there := m.CPUs[at.Core]; !there {
				t.Errorf("core %d of CPU %d has no CPU with the number of the core", at.Core, cpu)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	for text, want := range map[string]string{
		"x=1": `unknown Topology Manager Policy option: "x"`, "prefer-closest-numa-nodes=maybe": `bad value for option "prefer-closest-numa-nodes"`,
		"max-allowable-numa-nodes=x": "unable to convert policy option to integer", "max-allowable-numa-nodes=7": "should not be less than 8", "max-allowable-numa-nodes=9": "", "prefer-closest-numa-nodes=true": "",
	} {
		name, value, _ := strings.Cut(text, "=")
		if _, err := ParseOptions(map[string]string{name: value}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	var nine Machine
	for id := range 9 {
		nine.Nodes = append(nine.Nodes, Node{ID: id})
	}
	if _, err := NewPolicy(Restricted, Options{MaxNodes: 8}, nine); err == nil || err.Error() != "unsupported on machines with more than 8 NUMA Nodes" {
		t.Error(err)
	}
	if _, err := NewPolicy(Restricted, Options{MaxNodes: 9, PreferClosest: true}, nine); err == nil {
		t.Error("no error without the distances of nodes")
	}
	if p, err := NewPolicy(None, Options{MaxNodes: 8}, nine); err != nil {
		t.Error(err)
	} else if h, ok := p.Merge([]Hints{{"cpu": {}}}); h != (Hint{}) || !ok {
		t.Error("the policy none made a decision")
	}
}

// TestMasks checks that EachMask visits each nonempty subset once, and smaller subsets before larger ones.
func TestMasks(t *testing.T) {
	seen := map[Mask]bool{}
	last := 0
	EachMask([]int{0, 2, 5}, func(m Mask) {
		if seen[m] || m.Count() < last {
			t.Errorf("%b", m)
		}
		seen[m], last = true, m.Count()
	})
	if want := map[Mask]bool{1: true, 4: true, 32: true, 5: true, 33: true, 36: true, 37: true}; !maps.Equal(seen, want) {
		t.Errorf("seen %v", fmt.Sprint(seen))
	}
}
