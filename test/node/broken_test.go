package node

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A breaker makes broken archives of versions. The archives are the same in every run.
type breaker struct {
	*updates
	rand *rand.Rand
	was  string // the installed version
	next []byte // version 9.0.0, which works; nil if it has not been built
}

// kinds returns the kinds of broken archives, each with a part of the expected output of islet update.
func kinds() []struct {
	name, why string
	slow      bool // skipped without ISLET_TEST_LONG
	archive   func(b *breaker) string
} {
	// bad returns a version that runs test/badislet. The first argument selects the kind of failure.
	bad := func(how string, args ...func(*breaker) int) func(*breaker) string {
		return func(b *breaker) string {
			all := how
			for _, a := range args {
				all += fmt.Sprint(" ", a(b))
			}
			return b.brokenVersion(all)
		}
	}
	upTo := func(least, most int) func(*breaker) int {
		return func(b *breaker) int { return least + b.rand.IntN(most-least+1) }
	}
	signal := func(b *breaker) int { return []int{1, 4, 6, 7, 8, 9, 11, 15}[b.rand.IntN(8)] } // SIGPIPE does not end a Go program
	return []struct {
		name, why string
		slow      bool
		archive   func(b *breaker) string
	}{
		{"panics", "the agent ended", true, bad("crash")},
		{"ends", "the agent ended", true, bad("exit", upTo(0, 130))},
		{"a signal", "the agent ended", true, bad("signal", signal)},
		{"later", "the agent ended", false, bad("later", upTo(0, 5000))},
		{"hangs", "within 15s", false, bad("hang")},
		{"closes", "within 15s", true, bad("closes")},
		{"stopped", "within 15s", true, bad("stop")},
		{"deaf", "within 15s", true, bad("deaf")},
		{"eats", "within 15s", true, bad("eat", upTo(64, 256))},
		{"spins", "within 15s", true, bad("spin")},
		{"floods", "within 15s", true, bad("flood", upTo(1, 16))},
		{"children", "the agent ended", true, bad("children", upTo(1, 5))},
		{"no network", "pods are not ready", false, (*breaker).lonely},
		{"no manifests", "2 pods that ran would end", true, (*breaker).blind},
		{"self-test panics", "this agent crashes", false, bad("testcrash")},
		{"self-test ends", "fails its self-test", true, bad("testexit", upTo(0, 130))},
		{"self-test hangs", "did not end within", true, bad("testhang")},
		{"self-test eats", "fails its self-test", true, bad("testeat")},
		{"self-test floods", "fails its self-test", true, bad("testflood", upTo(1, 64))},
		{"another version", "fails its self-test", false, bad("testother")},
		{"architecture", "this machine is " + runtime.GOARCH, false, (*breaker).another},
		{"its program's", "the program is built for", true, (*breaker).foreign},
		{"truncated", "bytes, the release says", false, (*breaker).truncated},
		{"program truncated", "", true, func(b *breaker) string {
			return b.archive("9.0.0", b.bad[:1+b.rand.IntN(len(b.bad)-1)])
		}},
		{"changed", "SHA-512 differs", false, (*breaker).changed},
		{"signature", "signature", false, (*breaker).forged},
		{"of a stranger", "signed by 0 of the node's keys", false, (*breaker).strangers},
		{"older", "it is not newer", false, func(b *breaker) string { return b.archive("0.0."+fmt.Sprint(b.rand.IntN(9)), b.bad) }},
		{"the same", "it is not newer", true, func(b *breaker) string { return b.archive(b.was, b.bad) }},
		{"a script", "not an ELF file", false, func(b *breaker) string { return b.archive("9.0.0", []byte("#!/bin/sh\nreboot\n")) }},
		{"a mutant", "", true, (*breaker).mutant},
	}
}

// otherArchitecture returns an architecture that differs from the architecture of this machine.
func (b *breaker) otherArchitecture() string {
	if runtime.GOARCH == "riscv64" {
		return "amd64"
	}
	return "riscv64"
}

// another returns an archive whose release is for another architecture.
func (b *breaker) another() string {
	file := b.brokenVersion("crash")
	b.ReleaseFor(file, "9.0.0", b.otherArchitecture(), b.bad)
	return file
}

// foreign returns an archive whose program is an ELF file of another architecture.
func (b *breaker) foreign() string {
	p := bytes.Clone(b.bad)
	binary.LittleEndian.PutUint16(p[18:], uint16(1+b.rand.IntN(39))) // e_machine of elf(5); islet supports none of these values
	return b.archive("9.0.0", p)
}

// lonely returns a version that runs the installed program without a network.
func (b *breaker) lonely() string {
	b.m.Run("cp", b.m.Binary(), b.m.Disk+"/lonely")
	return b.brokenVersion("network " + b.m.Disk + "/lonely")
}

// blind returns a version that runs the installed program without manifests.
func (b *breaker) blind() string {
	b.m.Run("cp", b.m.Binary(), b.m.Disk+"/blind")
	return b.brokenVersion("blind " + b.m.Disk + "/blind")
}

// edit changes a file of the archive.
func (b *breaker) edit(file string, how func([]byte) []byte) {
	b.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, how(data), 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func (b *breaker) truncated() string {
	file := b.brokenVersion("crash")
	b.edit(file, func(data []byte) []byte { return data[:b.rand.IntN(len(data))] })
	return file
}

func (b *breaker) changed() string {
	file := b.brokenVersion("crash")
	b.edit(file, func(data []byte) []byte { data[b.rand.IntN(len(data))] ^= 1 << b.rand.IntN(8); return data })
	return file
}

// forged returns an archive whose release has one changed byte in its signature.
func (b *breaker) forged() string {
	file := b.brokenVersion("crash")
	b.edit(file+".release", func(data []byte) []byte {
		at := bytes.LastIndexByte(bytes.TrimSpace(data), ' ') + 1
		i := at + b.rand.IntN(80)
		if data[i] == 'A' {
			data[i] = 'B'
		} else {
			data[i] = 'A'
		}
		return data
	})
	return file
}

func (b *breaker) strangers() string {
	file, key := b.brokenVersion("crash"), filepath.Join(b.TempDir(), "key")
	b.NewKey(key)
	b.ReleaseFor(file, "9.0.0", runtime.GOARCH, b.bad, key)
	return file
}

// mutant returns a working program in which up to 1 % of the pages are random bytes.
func (b *breaker) mutant() string {
	if b.next == nil {
		b.next = b.BuildVersion("9.0.0")
	}
	const page = 4 << 10
	p := bytes.Clone(b.next)
	for range 1 + b.rand.IntN(len(p)/page/100) {
		at := page * (1 + b.rand.IntN(len(p)/page-1))
		for i := at; i < at+page; i += 8 {
			binary.LittleEndian.PutUint64(p[i:], b.rand.Uint64())
		}
	}
	return b.archive("9.0.0", p)
}

// lastCount returns the last number that the counting pod has logged.
func (b *breaker) lastCount() int {
	out := b.m.Islet("logs", "one-edge", "--tail=1")
	said := strings.Fields(out) // --tail=1 may also print lines that are logged meanwhile
	n, err := strconv.Atoi(said[len(said)-1])
	if err != nil {
		b.Errorf("the last log line of the pod is %q", out)
	}
	return n
}

// tryArchive updates the node to a broken version. It checks that the previous version is in use again within a minute, and that the pod
// continues.
func (b *breaker) tryArchive(name, why string, archive func(*breaker) string) {
	b.Helper()
	installed, err := os.ReadFile(b.m.Binary())
	if err != nil {
		b.Fatal(err)
	}
	file, counted, began := archive(b), b.lastCount(), time.Now()
	out, code := b.m.Try("update", file)
	took := time.Since(began)
	if took > time.Minute {
		b.Errorf("%s: the update took %v", name, took)
	}
	if len(out) > 16<<10 { // whatever the program writes
		b.Errorf("%s: the output has %d bytes", name, len(out))
		out = out[:16<<10]
	}
	switch {
	case code == 0 && why == "": // the defect has no effect
		b.as("9.0.0")
		b.m.Islet("update", "--older", b.archive(b.was, installed))
	case code != 1 || !strings.Contains(out, why):
		b.Errorf("%s: code %d, %s", name, code, out)
	}
	b.as(b.was)
	b.m.Await("the pod to go on", func() bool { return b.lastCount() > counted })
	b.Logf("%-18s %5.1fs %s", name, took.Seconds(), strings.Join(strings.Fields(out), " "))
}

// TestBrokenPrograms checks that a node rejects or rolls back every kind of broken version within a minute. No container may restart. With
// ISLET_TEST_LONG the test runs 100 updates.
func TestBrokenPrograms(t *testing.T) {
	t.Parallel()
	all := kinds()
	b := &breaker{updates: newUpdates(t, quickly), rand: rand.New(rand.NewPCG(1, 2))}
	b.was = strings.Fields(b.m.Islet("version"))[1]
	if os.Getenv("ISLET_TEST_LONG") == "" {
		for _, k := range all {
			if !k.slow {
				b.tryArchive(k.name, k.why, k.archive)
			}
		}
		return
	}
	order := b.rand.Perm(100)
	for _, i := range order[slice(t, 0, 100):slice(t, 1, 100)] {
		k := all[i%len(all)]
		b.tryArchive(k.name, k.why, k.archive)
	}
}

// slice returns the index at which a part of n cases begins (end is 0) or ends (end is 1). ISLET_TEST_SLICE=2/5 selects the second of five
// parts, because all cases together may take too long for one run.
func slice(t *testing.T, end, n int) int {
	t.Helper()
	text := os.Getenv("ISLET_TEST_SLICE")
	if text == "" {
		return end * n
	}
	part, of := 0, 0
	if _, err := fmt.Sscanf(text, "%d/%d", &part, &of); err != nil || part < 1 || part > of {
		t.Fatalf("ISLET_TEST_SLICE is %q, not such as 2/5", text)
	}
	return (part - 1 + end) * n / of
}

// TestBrokenLong checks that the default timeouts are short enough: the node rolls back within a minute from a version that does nothing.
func TestBrokenLong(t *testing.T) {
	t.Parallel()
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("waits a minute: ISLET_TEST_LONG=1")
	}
	b := &breaker{updates: newUpdates(t, "")}
	b.was = strings.Fields(b.m.Islet("version"))[1]
	b.tryArchive("hangs", "the node was not as healthy as before", func(b *breaker) string { return b.brokenVersion("deaf") })
}
