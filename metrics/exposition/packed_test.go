package exposition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// manySubjects returns n pods with a container each.
func manySubjects(n int) (all []Subject) {
	for i := range n {
		uid, id := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i))), fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, "c", i)))
		path := fmt.Sprintf("/kubepods/besteffort/pod%s-%s-%s-%s-%s", uid[:8], uid[8:12], uid[12:16], uid[16:20], uid[20:32])
		d := cgroup.Details{Figures: cgroup.Figures{At: time.UnixMilli(1795394343000 + int64(i)), CPU: time.Duration(i) * 1234567, Memory: uint64(i) * 40960, WorkingSet: uint64(i) * 8192}}
		pod := Subject{Group: &sample.Group{Path: path, Kind: sample.Pod, Reading: cgroup.Reading{Details: &d, At: d.At}, Network: []process.Interface{{Name: "eth0"}}}, Pod: fmt.Sprintf("p%03d-edge", i), Namespace: "default", Sandbox: id[32:] + uid[:32]}
		container := Subject{Group: &sample.Group{Path: path + "/" + id, Kind: sample.Container, Reading: cgroup.Reading{Details: &d, At: d.At}, Open: process.Files{Known: true}},
			Container: "c", Name: id, Image: "localhost/podtool:test", Pod: pod.Pod, Namespace: pod.Namespace}
		all = append(all, pod, container)
	}
	return all
}

// servePage returns the decompressed page that a client receives, and its compressed length.
func servePage(t *testing.T, all []Subject, accept string) (text []byte, wire int) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", accept)
	w := httptest.NewRecorder()
	ServeContainers(w, r, machine, all, nil)
	if accept == "" {
		return w.Body.Bytes(), w.Body.Len()
	}
	wire = w.Body.Len()
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return text, wire
}

// TestPacked checks that a compressed page contains the same text as an uncompressed page. This must hold for any Subjects and for several
// pages in a row. A large page must be compressed well.
func TestPacked(t *testing.T) {
	many := manySubjects(3)
	for i := range 300 { // lines of one Subject that are longer than the distance of a match
		many[1].IO = append(many[1].IO, cgroup.IO{Device: fmt.Sprint("8:", i), Reads: uint64(i)})
	}
	odd := manySubjects(4)
	for i := range odd {
		s := &odd[i]
		s.Namespace, s.Image = strings.Repeat(`"\`, rand.IntN(40)), strings.Repeat("é\n", rand.IntN(200))
		s.Quota, s.Devices = uint64(i%2), []disk.Device{{Name: strings.Repeat("x", 2*i)}}
		s.Pressure = cgroup.Pressures{CPU: &cgroup.Pressure{Some: cgroup.Stall{Total: time.Duration(rand.Int64N(1 << 40))}}}
		if i > 5 {
			s.Container, s.Pod, s.Name = "", "", ""
		}
	}
	for name, all := range map[string][]Subject{"none": nil, "one": manySubjects(1), "few": manySubjects(5), "crowd": manySubjects(100), "many": many, "odd": odd} {
		t.Run(name, func(t *testing.T) {
			plain, _ := servePage(t, all, "")
			got, wire := servePage(t, all, "gzip")
			if !bytes.Equal(plain, got) {
				t.Fatalf("%d bytes are %d others", len(plain), len(got))
			}
			if t.Logf("%d bytes of text are %d packed", len(plain), wire); name == "crowd" && wire > len(plain)/7 {
				t.Errorf("%d bytes of %d", wire, len(plain))
			}
		})
	}
}

// TestPackedAgain checks that a page is complete although it reuses the memory of another page. The other page has other figures or other
// containers.
func TestPackedAgain(t *testing.T) {
	all := manySubjects(30)
	check := func(what string) {
		t.Helper()
		plain, _ := servePage(t, all, "")
		for range 3 {
			if got, _ := servePage(t, all, "gzip"); !bytes.Equal(plain, got) {
				t.Fatalf("%s: %d bytes are %d others", what, len(plain), len(got))
			}
		}
	}
	check("first")
	for i := range all {
		d := *all[i].Details
		d.CPU, d.Memory, d.Quota = d.CPU*7, d.Memory+1, uint64(i%3)
		all[i].Group.Details, all[i].Group.At = &d, d.At.Add(time.Hour)
	}
	check("other figures")
	all[20].Name, all[21].Container = strings.Repeat("f", 64), "another"
	check("another container")
	all = all[:40]
	check("fewer")
	all = append(all, manySubjects(60)...)
	check("more")
	all[3], all[50] = all[50], all[3]
	check("in another order")
}

// TestSeconds checks that a duration is written with all its digits.
func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{1: "0.000000001", time.Second: "1", 1500 * time.Millisecond: "1.5", 12*time.Second + 34*time.Millisecond: "12.034", 1<<63 - 1: "9223372036.854775807"} {
		if got := string(appendSeconds(nil, d)); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}

func BenchmarkServe(b *testing.B) {
	all := manySubjects(100)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	b.ReportAllocs()
	for b.Loop() {
		ServeContainers(nowhere{}, r, machine, all, nil)
	}
}

// sameUpTo returns the length of the common prefix of two texts.
func sameUpTo(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
