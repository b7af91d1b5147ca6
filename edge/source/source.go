package source

import (
	"bytes"
	"context"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/manifest"
)

// A Sink takes what a source tells. *desired.Desired is one.
type Sink interface {
	// Set takes the full set of a source in place of the former one. Pods of an
	// origin that has a problem are kept as they are. An error means that the set
	// was not taken and is to be told again.
	Set(ctx context.Context, source string, claims []desired.Claim, problems []desired.Problem) error
	// Fail takes why a source cannot tell its set: all its pods stay.
	Fail(source string, problems []desired.Problem)
}

// A ManifestSink takes what a source of manifests tells.
type ManifestSink interface {
	Sink
	// SetObjects takes what else a source has, in place of the former, before Set takes its
	// pods, which may use it. Objects of an origin that has a problem are kept as they are.
	SetObjects(ctx context.Context, source string, objects []local.Claimed, problems []desired.Problem) error
}

// Decode reads a manifest that came from a file or URL.
type Decode func(data []byte, origin string) (manifest.Set, error)

// content is what a manifest says.
type content struct {
	claims  []desired.Claim
	objects []local.Claimed
}

// tell gives a sink all that a source has: first what its pods use.
func tell(ctx context.Context, to ManifestSink, source string, all content, problems []desired.Problem) error {
	if err := to.SetObjects(ctx, source, all.objects, problems); err != nil {
		return err
	}
	return to.Set(ctx, source, all.claims, problems)
}

// parse decodes a manifest. Its content and problems carry shown as their origin,
// which is origin without secrets.
func parse(decode Decode, data []byte, origin, shown string) (all content, problems []desired.Problem) {
	if blank(data) {
		return content{}, []desired.Problem{{Origin: shown, Message: "is empty; its former pods stay: remove the file, or serve a List without items, to end them"}}
	}
	set, err := decode(data, origin)
	if err != nil {
		return content{}, describe(err, shown)
	}
	for _, pod := range set.Pods {
		all.claims = append(all.claims, desired.Claim{Pod: pod, Origin: shown})
	}
	for _, obj := range set.Objects {
		all.objects = append(all.objects, local.Claimed{Object: obj, Origin: shown})
	}
	return all, nil
}

func describe(err error, origin string) (problems []desired.Problem) {
	for _, e := range manifest.All(err) {
		message := e.Detail
		if e.Pod != "" {
			message = e.Pod + ": " + message
		}
		problems = append(problems, desired.Problem{Origin: origin, Field: e.Field, Message: message})
	}
	if len(problems) == 0 {
		problems = []desired.Problem{{Origin: origin, Message: err.Error()}}
	}
	return problems
}

// blank says that a manifest has no document, only comments and space.
func blank(data []byte) bool {
	for line := range bytes.Lines(data) {
		switch line = bytes.Trim(line, " \t\r\n\x00\ufeff"); {
		case len(line) == 0, line[0] == '#', bytes.Equal(line, []byte("---")), bytes.Equal(line, []byte("...")):
		default:
			return false
		}
	}
	return true
}
