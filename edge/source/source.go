package source

import (
	"bytes"
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
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

// Decode reads the pods of a manifest that came from a file or URL.
type Decode func(data []byte, origin string) ([]*v1.Pod, error)

// parse decodes a manifest. Its claims and problems carry shown as their origin,
// which is origin without secrets.
func parse(decode Decode, data []byte, origin, shown string) (claims []desired.Claim, problems []desired.Problem) {
	if blank(data) {
		return nil, []desired.Problem{{Origin: shown, Message: "is empty; its former pods stay: remove the file, or serve a List without items, to end them"}}
	}
	pods, err := decode(data, origin)
	if err != nil {
		return nil, describe(err, shown)
	}
	for _, pod := range pods {
		claims = append(claims, desired.Claim{Pod: pod, Origin: shown})
	}
	return claims, nil
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
