package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/sorting"
)

const (
	// maxFindings is the maximum number of findings in a report. Further findings are only counted.
	maxFindings = 1000
	// maxText is the maximum length of a message, in bytes. Without this limit, a message that
	// quotes the file could be very long.
	maxText = 1000
)

// Rules are the rules that other packages provide.
type Rules struct {
	// Unsupported returns the fields of a pod that this version of islet does not support on any node, and the reason why no node runs the
	// pod. The node allows real time to the pods that an EdgeConfiguration among the checked files names. The findings have no file, line
	// and object. Unsupported may be nil.
	Unsupported func(*v1.Pod, config.RealTime) []finding.Finding
}

// Check checks files that are meant for one node. The parameter node is nil if nothing is known about that node.
func (r Rules) Check(files []finding.File, node *finding.Node) finding.Report {
	c := &checkup{node: node, defined: map[reference]*definition{}}
	c.report.Findings = []finding.Finding{}
	var pods []*pod
	for _, f := range files {
		pods = append(pods, c.read(f)...)
	}
	for _, p := range pods {
		p.images()
		p.quantities()
		p.templates()
		p.missingObjects()
		p.volumeTypes()
		if r.Unsupported != nil {
			for _, f := range r.Unsupported(p.Pod, c.realTime) {
				p.addAt(f.Severity, f.Field, f.Message)
			}
		}
	}
	c.collidingPorts(pods)
	c.report.Files = len(files)
	sorting.StableBy(c.report.Findings, func(a, b finding.Finding) int {
		return cmp.Or(cmp.Compare(c.position(files, a.File), c.position(files, b.File)), cmp.Compare(a.Line, b.Line))
	})
	return c.report
}

// position returns the position of a file among the files of the user.
func (c *checkup) position(files []finding.File, name string) int {
	return slices.IndexFunc(files, func(f finding.File) bool { return f.Name == name })
}

// A checkup is one call of Check.
type checkup struct {
	node     *finding.Node
	defined  map[reference]*definition
	realTime config.RealTime // of the EdgeConfiguration among the files
	report   finding.Report
}

// A reference identifies an object.
type reference struct{ kind, namespace, name string }

// A definition is an object in one of the files.
type definition struct {
	file string
	line int
	keys []string // keys of a ConfigMap or Secret; nil if they are unknown
}

// A pod is a valid pod in one of the files.
type pod struct {
	*v1.Pod
	*checkup
	file  string
	place *manifest.Place
}

// full reports whether the report has the maximum number of findings. Further findings are only
// counted.
func (c *checkup) full() bool { return len(c.report.Findings) >= maxFindings }

func (c *checkup) add(f finding.Finding) {
	if f.Severity == finding.Error {
		c.report.Errors++
	} else {
		c.report.Warnings++
	}
	if c.full() {
		c.report.Omitted++
		return
	}
	f.Object, f.Field, f.Message = sanitize(f.Object), sanitize(f.Field), sanitize(f.Message)
	c.report.Findings = append(c.report.Findings, f)
}

// sanitize makes a text from a file safe for terminals, and limits the length of the text.
func sanitize(text string) string { return printable.Cut(text, maxText) }

// errorf and warnf add a finding about a field of the pod.
func (p *pod) errorf(field, format string, args ...any) {
	p.addAt(finding.Error, field, fmt.Sprintf(format, args...))
}

func (p *pod) warnf(field, format string, args ...any) {
	p.addAt(finding.Warning, field, fmt.Sprintf(format, args...))
}

func (p *pod) addAt(s finding.Severity, field, message string) {
	line := 0
	if p.place != nil && !p.full() {
		line = p.place.Find(field)
	}
	p.add(finding.Finding{File: p.file, Line: line, Severity: s, Object: fmt.Sprintf("pod %q", p.Name), Field: field, Message: message})
}

// read checks whether a file is valid, and returns its pods.
func (c *checkup) read(f finding.File) (pods []*pod) {
	places := manifest.Places(f.Data)
	if slices.ContainsFunc(places, func(p *manifest.Place) bool { return isConfiguration(p.Kind) }) {
		c.configuration(f)
		return nil
	}
	c.define(f.Name, places)
	set, err := manifest.Decode(f.Data, manifest.Options{Origin: f.Name, Source: keys.SourceLocal, Lists: true, Partial: true})
	errs := manifest.ErrorsIn(err)
	for _, e := range errs {
		if isMisspelled(e, errs) {
			continue
		}
		c.add(finding.Finding{File: f.Name, Line: e.Line, Severity: finding.Error, Object: e.Pod, Field: e.Field, Message: e.Detail})
	}
	if err == nil && set.IsEmpty() {
		c.add(finding.Finding{File: f.Name, Severity: finding.Warning, Message: "contains no pod and no object that pods use"})
	}
	find := func(kind, namespace, name string) *manifest.Place {
		i := slices.IndexFunc(places, func(p *manifest.Place) bool {
			return p.Kind == kind && p.Namespace == namespace && p.Name == name
		})
		if i < 0 {
			return nil
		}
		return places[i]
	}
	for _, p := range set.Pods {
		pods = append(pods, &pod{Pod: p, checkup: c, file: f.Name, place: find("Pod", p.Namespace, p.Name)})
	}
	for _, o := range set.Objects {
		c.object(f.Name, o, find(manifest.KindOf(o), o.GetNamespace(), o.GetName()))
	}
	c.report.Pods += len(set.Pods)
	c.report.Objects += len(set.Objects)
	return pods
}

// isMisspelled reports whether e is about a required field whose misspelled name is the subject of another error, which names the field
// that was meant.
func isMisspelled(e *manifest.Error, errs []*manifest.Error) bool {
	const required = "Required value"
	parent, name := splitField(e.Field)
	if !strings.HasPrefix(e.Detail, required) {
		return false
	}
	hint := fmt.Sprintf("did you mean %q?", name)
	return slices.ContainsFunc(errs, func(typo *manifest.Error) bool {
		if p, _ := splitField(typo.Field); p != parent || typo.Line < e.Line || !strings.HasSuffix(typo.Detail, hint) {
			return false
		}
		// Another document between the two may lack the same field.
		return !slices.ContainsFunc(errs, func(o *manifest.Error) bool {
			return o.Field == e.Field && e.Line < o.Line && o.Line <= typo.Line && strings.HasPrefix(o.Detail, required)
		})
	})
}

// splitField returns the path of the object that contains a field, and the name of the field.
func splitField(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

// define records the objects of a file. It also records the objects of an invalid file. It reports an
// object that is in more than one file.
func (c *checkup) define(file string, places []*manifest.Place) {
	for _, p := range places {
		if p.Name == "" {
			continue
		}
		ref := reference{p.Kind, p.Namespace, p.Name}
		before := c.defined[ref]
		if before == nil {
			c.defined[ref] = &definition{file: file, line: p.Line}
			continue
		}
		if before.file != file { // package manifest reports the others
			c.add(finding.Finding{File: file, Line: p.Line, Severity: finding.Error, Object: fmt.Sprintf("%s %q", p.Kind, p.Name),
				Message: fmt.Sprintf("is also in %s:%d, and only one of them can be used", before.file, before.line)})
		}
	}
}

// object checks a valid object, and records its keys.
func (c *checkup) object(file string, o manifest.Object, place *manifest.Place) {
	d := c.defined[reference{manifest.KindOf(o), o.GetNamespace(), o.GetName()}]
	if d == nil || d.file != file {
		return
	}
	d.keys = []string{}
	switch o := o.(type) {
	case *v1.ConfigMap:
		for k := range o.Data {
			d.keys = append(d.keys, k)
		}
		for k := range o.BinaryData {
			d.keys = append(d.keys, k)
		}
	case *v1.Secret:
		for k := range o.Data {
			d.keys = append(d.keys, k)
		}
	case *v1.PersistentVolumeClaim:
		const at = "spec.resources.requests[storage]"
		if severity, message := checkSize(o.Spec.Resources.Requests[v1.ResourceStorage]); message != "" {
			line := 0
			if place != nil {
				line = place.Find(at)
			}
			c.add(finding.Finding{File: file, Line: line, Severity: severity, Object: fmt.Sprintf("PersistentVolumeClaim %q", o.Name),
				Field: at, Message: message})
		}
	}
	slices.Sort(d.keys)
}

func isConfiguration(kind string) bool {
	return kind == "KubeletConfiguration" || kind == config.EdgeKind
}

// configuration checks a file with configurations of the node.
func (c *checkup) configuration(f finding.File) {
	c.report.Configurations++
	checked, mistakes, notices := config.Check(f.Name, f.Data)
	if checked != nil && len(checked.Edge.RealTime.Pods) > 0 {
		c.realTime = checked.Edge.RealTime
	}
	for _, m := range mistakes {
		c.add(finding.Finding{File: f.Name, Line: m.Line, Severity: finding.Error, Field: m.Field, Message: m.Detail})
	}
	for _, n := range notices {
		c.add(finding.Finding{File: f.Name, Line: n.Line, Severity: finding.Warning, Field: n.Field, Message: n.Detail})
	}
}
