package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/printable"
)

// Apply sets up islet apply.
func Apply(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	var m manifestFlag
	m.declareFiles(flags)
	dry := flags.Bool("dry-run", false, "only check the manifests, with the rules of islet check and what the node knows")
	var w applyWait
	w.declareWait(flags)
	return func(ctx context.Context, args []string) error {
		m.files = append(m.files, args...) // for the command islet apply web.yaml
		if len(m.files) == 0 {
			return command.Usage("apply needs a file: islet apply -f FILE")
		}
		if w.wait && *dry {
			return command.Usage("--wait cannot be combined with --dry-run")
		}
		if *dry {
			return dryRun(ctx, t, &m)
		}
		err := m.readFiles(t.Stdin, func(origin string, data []byte) error {
			if err := applyManifest(ctx, t, origin, data, false, &w); err != nil {
				return err
			}
			warnAbout(t, finding.File{Name: origin, Data: data})
			return nil
		})
		return errors.Join(err, w.await(ctx, t))
	}
}

func applyManifest(ctx context.Context, t *command.Tool, origin string, data []byte, dry bool, w *applyWait) error {
	var done []api.Applied
	q, note := url.Values{"origin": {origin}}, ""
	if dry {
		q.Set("dryRun", "1")
		note = " (dry run)"
	}
	if err := client.Call(ctx, t, http.MethodPost, api.PathPods, q, bytes.NewReader(data), &done); err != nil {
		return err
	}
	w.add(done)
	var errs []error
	for _, a := range done {
		for _, w := range a.Warnings {
			fmt.Fprintf(t.Stderr, "Warning: %s/%s: %s\n", printable.Line(shortKind(a.Kind)), printable.Line(a.Name), printable.Line(w))
		}
		if a.Rejection != "" {
			errs = append(errs, fmt.Errorf("pod/%s: the node would reject this pod: %s", a.Name, a.Rejection))
			continue
		}
		fmt.Fprintf(t.Out, "%s/%s %s%s\n", printable.Line(shortKind(a.Kind)), printable.Line(a.Name), a.Action, note)
	}
	return errors.Join(errs...)
}
