package bundle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// A Difference is what changes from one bundle to another.
type Difference struct {
	Lines []string // such as "+ file web.yaml"
	Bytes int64    // of the blobs that only the new bundle has
}

// Diff compares two bundles.
func Diff(ctx context.Context, before, after *Bundle) (*Difference, error) {
	d := &Difference{}
	a, b := before.Contents, after.Contents
	for _, f := range []struct{ what, a, b string }{
		{"name", a.Name, b.Name}, {"number", fmt.Sprint(a.Number), fmt.Sprint(b.Number)}, {"expires", a.Expires, b.Expires},
		{"for", fmt.Sprint(targetText(a.For)), fmt.Sprint(targetText(b.For))},
	} {
		if f.a != f.b {
			d.Lines = append(d.Lines, fmt.Sprintf("~ %s: %s -> %s", f.what, orNone(f.a), orNone(f.b)))
		}
	}
	d.compare("file", fileDigests(before), fileDigests(after))
	d.compare("image", imageDigests(before), imageDigests(after))
	old, err := before.Blobs(ctx)
	if err != nil {
		return nil, err
	}
	had := map[digest.Digest]bool{}
	for _, o := range old {
		had[o.Digest] = true
	}
	blobs, err := after.Blobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range blobs {
		if !had[n.Digest] {
			d.Bytes += n.Size
		}
	}
	return d, nil
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func targetText(t *Target) string {
	if t == nil {
		return "all nodes"
	}
	var parts []string
	if len(t.Names) > 0 {
		parts = append(parts, "names "+strings.Join(t.Names, ", "))
	}
	if len(t.Labels) > 0 {
		labels := make([]string, 0, len(t.Labels))
		for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
			labels = append(labels, key+"="+t.Labels[key])
		}
		parts = append(parts, "labels "+strings.Join(labels, ", "))
	}
	if len(parts) == 0 {
		return "all nodes"
	}
	return strings.Join(parts, "; ")
}

// Text returns for whom the bundle is.
func (t *Target) Text() string { return targetText(t) }

// A named is something with a name and a digest.
type named struct {
	name   string
	digest digest.Digest
}

func fileDigests(b *Bundle) (list []named) {
	for _, f := range b.Files {
		list = append(list, named{f.Name, f.Digest})
	}
	return list
}

func imageDigests(b *Bundle) (list []named) {
	for _, i := range b.Contents.Images {
		for _, m := range i.Manifests {
			list = append(list, named{i.Name + " " + m.Platform, m.Digest})
		}
	}
	return list
}

// compare adds a line for each name that only one list has, or that has another digest.
func (d *Difference) compare(what string, before, after []named) {
	find := func(list []named, name string) int {
		return slices.IndexFunc(list, func(n named) bool { return n.name == name })
	}
	for _, n := range before {
		if find(after, n.name) < 0 {
			d.Lines = append(d.Lines, "- "+what+" "+n.name)
		}
	}
	for _, n := range after {
		switch at := find(before, n.name); {
		case at < 0:
			d.Lines = append(d.Lines, "+ "+what+" "+n.name)
		case before[at].digest != n.digest:
			d.Lines = append(d.Lines, "~ "+what+" "+n.name)
		}
	}
}
