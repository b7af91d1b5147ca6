package source

import (
	"bytes"
	"context"
	"fmt"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/manifest"
)

// A Sink receives the pods that a source wants to run. *desired.Desired implements it.
type Sink interface {
	// Set receives all pods of a source. They replace the former pods of this source. The pods of an origin with a problem are kept. If Set
	// returns an error, the source calls it again.
	Set(ctx context.Context, source string, pods []desired.SourcePod, problems []desired.Problem) error
	// ReportFailure receives the reason why a source cannot read its pods. All pods of the source are kept.
	ReportFailure(source string, problems []desired.Problem)
}

// A ManifestSink receives the pods and other objects of a source that reads manifests.
type ManifestSink interface {
	Sink
	// SetObjects receives the objects of a source that are not pods. It is called before Set, because the pods may use the objects. The
	// objects of an origin with a problem are kept.
	SetObjects(ctx context.Context, source string, objects []local.DefinedObject, problems []desired.Problem) error
}

// Decode decodes a manifest from a file or URL.
type Decode func(data []byte, origin string) (manifest.Set, error)

// content is the decoded content of manifests.
type content struct {
	pods    []desired.SourcePod
	objects []local.DefinedObject
}

// deliver passes the content of a source to a sink. It passes the objects first, because the pods may use them.
func deliver(ctx context.Context, to ManifestSink, source string, set content, problems []desired.Problem) error {
	if err := to.SetObjects(ctx, source, set.objects, problems); err != nil {
		return err
	}
	return to.Set(ctx, source, set.pods, problems)
}

// parse decodes a manifest. The pods, objects and problems contain the origin without secrets.
func parse(decode Decode, data []byte, origin, shown string) (parsed content, problems []desired.Problem) {
	if isBlank(data) {
		const empty = "is empty, so its previous pods are kept: to end them, remove the file, or serve a List without items"
		return content{}, []desired.Problem{{Origin: shown, Message: empty}}
	}
	set, err := decode(data, origin)
	if err != nil {
		return content{}, describeErrors(err, shown)
	}
	for _, pod := range set.Pods {
		parsed.pods = append(parsed.pods, desired.SourcePod{Pod: pod, Origin: shown})
	}
	for _, obj := range set.Objects {
		parsed.objects = append(parsed.objects, local.DefinedObject{Object: obj, Origin: shown})
	}
	return parsed, nil
}

func describeErrors(err error, origin string) (problems []desired.Problem) {
	for _, e := range manifest.ErrorsIn(err) {
		message := e.Detail
		if e.Pod != "" {
			message = e.Pod + ": " + message
		}
		if e.Line > 0 {
			message = fmt.Sprintf("line %d: %s", e.Line, message)
		}
		problems = append(problems, desired.Problem{Origin: origin, Field: e.Field, Message: message})
	}
	if len(problems) == 0 {
		problems = []desired.Problem{{Origin: origin, Message: err.Error()}}
	}
	return problems
}

// isBlank reports whether a manifest contains only comments and white space.
func isBlank(data []byte) bool {
	for line := range bytes.Lines(data) {
		switch line = bytes.Trim(line, " \t\r\n\x00\ufeff"); {
		case len(line) == 0, line[0] == '#', bytes.Equal(line, []byte("---")), bytes.Equal(line, []byte("...")):
		default:
			return false
		}
	}
	return true
}
