package exposition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// crowd is what there is of n pods with a container each.
func crowd(n int) (all []Subject) {
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

func crowdPage(n int) []byte {
	var p page
	writeContainers(&p, Machine{}, crowd(n), nil, func(s string) string { return s })
	return p.b
}

// packed packs in parts of a length.
func packed(text []byte, size int) []byte {
	var out bytes.Buffer
	p := new(packer)
	p.begin(&out)
	for len(text) > 0 {
		n := min(size, len(text))
		p.Write(text[:n])
		text = text[n:]
	}
	p.Close()
	return out.Bytes()
}

func checkPacked(t *testing.T, text []byte, size int) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed(text, size)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%d bytes in parts of %d become %d: %v", len(text), size, len(got), err)
	}
}

// TestPack: a real page is as small as a general compressor makes it, and whole.
func TestPack(t *testing.T) {
	text := crowdPage(100)
	for _, size := range []int{len(text), 32 << 10, 1000} {
		checkPacked(t, text, size)
	}
	checkPacked(t, crowdPage(5), 7)
	var general bytes.Buffer
	z, _ := gzip.NewWriterLevel(&general, gzip.BestSpeed)
	z.Write(text)
	z.Close()
	ours := packed(text, len(text))
	t.Logf("%d bytes of text: %d packed, %d by a general compressor", len(text), len(ours), general.Len())
	if len(ours) > general.Len()*5/4 {
		t.Errorf("%d bytes, %d by a general compressor", len(ours), general.Len())
	}
	var longest uint8
	for _, c := range common().symbol {
		longest = max(longest, c.n)
	}
	if longest > 15 {
		t.Errorf("a code of %d bits", longest)
	}
}

// FuzzPack: any text can be unpacked again.
func FuzzPack(f *testing.F) {
	f.Add([]byte(nil), 1)
	f.Add(crowdPage(2), 100)
	f.Add([]byte(strings.Repeat("a b\"", 20000)), 1<<20) // pieces further away than a match may be
	f.Add([]byte("\n\n\"\"\n\" \"\n   \n"), 3)
	f.Add(bytes.Repeat([]byte{0, 255, '"', 10}, 300), 50)
	f.Add([]byte(strings.Repeat("x", 1000)+"\n"+strings.Repeat("x", 1000)+"\n"), 1<<20)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		checkPacked(t, text, max(1, size))
	})
}

func BenchmarkPage(b *testing.B) {
	all, text := crowd(100), crowdPage(100)
	b.Run("text", func(b *testing.B) {
		var p page
		for b.Loop() {
			p.b = p.b[:0]
			writeContainers(&p, Machine{}, all, nil, func(s string) string { return s })
		}
	})
	b.Run("pack", func(b *testing.B) {
		p := new(packer)
		for b.Loop() {
			p.begin(io.Discard)
			p.Write(text)
			p.Close()
		}
	})
}
