package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/finding"
)

const (
	// smallest is the smallest plausible size in bytes. A smaller size is surely a mistake, because no
	// process can run with less memory.
	smallest = 64 << 10
	// mostCores is a number of CPUs that no edge node has. manyCores is a number that hardly any
	// edge node has.
	mostCores, manyCores = 1024, 64
)

// quantities reports quantities that the API accepts, but that are surely or probably wrong. It checks sizes
// in bytes and numbers of CPUs.
func (p *pod) quantities() {
	p.eachContainer(func(at *field.Path, c *v1.Container) { p.resources(at.Child("resources"), c.Resources) })
	if p.Spec.Resources != nil {
		p.resources(field.NewPath("spec", "resources"), *p.Spec.Resources)
	}
	for i, v := range p.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil {
			at := field.NewPath("spec", "volumes").Index(i).Child("emptyDir", "sizeLimit").String()
			if severity, message := checkSize(*v.EmptyDir.SizeLimit); message != "" {
				p.addAt(severity, at, message)
			}
		}
	}
}

func (p *pod) resources(at *field.Path, r v1.ResourceRequirements) {
	for _, part := range []struct {
		name string
		list v1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(part.list)) {
			q := part.list[name]
			if _, limited := r.Limits[name]; part.name == "requests" && limited && r.Limits[name].Equal(q) {
				continue // the request may have been set to the limit; one finding, about the limit, suffices
			}
			severity, message := finding.Error, ""
			switch {
			case name == v1.ResourceCPU:
				severity, message = checkCores(q)
			case name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage, strings.HasPrefix(string(name),
				v1.ResourceHugePagesPrefix):
				severity, message = checkSize(q)
			}
			if message != "" {
				p.addAt(severity, at.Child(part.name).Key(string(name)).String(), message)
			}
		}
	}
}

// checkSize returns a message if a size in bytes is surely wrong. It accepts zero, because zero has
// a meaning.
func checkSize(q resource.Quantity) (finding.Severity, string) {
	switch milli := q.MilliValue(); {
	case q.Sign() <= 0:
	case milli%1000 != 0:
		return finding.Error, fmt.Sprintf("%s is %s bytes, because m means thousandths: did you mean %dMi?", q.String(),
			decimal(milli), milli)
	case q.Value() < smallest:
		return finding.Error, fmt.Sprintf("%s is only %d bytes: did you mean %[1]sMi?", q.String(), q.Value())
	}
	return "", ""
}

// decimal formats thousandths.
func decimal(milli int64) string {
	return strings.TrimRight(fmt.Sprintf("%d.%03d", milli/1000, milli%1000), "0")
}

// checkCores returns a message if a number of CPUs is surely or probably wrong.
func checkCores(q resource.Quantity) (finding.Severity, string) {
	severity := finding.Warning
	switch {
	case q.Value() < manyCores:
		return "", ""
	case q.Value() > mostCores:
		severity = finding.Error
	}
	if q.Format == resource.BinarySI || q.Value() > 1_000_000 {
		return severity, fmt.Sprintf("%s is a number of CPUs: did you mean memory?", q.String())
	}
	return severity, fmt.Sprintf("%s means %d CPUs: did you mean %[2]dm?", q.String(), q.Value())
}
