package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// Names returns the tags of an image. If the image has no tag, it returns the digests. If the
// image has no digest either, it returns the ID.
func Names(i api.Image) []string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags
	case len(i.Digests) > 0:
		return i.Digests
	}
	return []string{i.ID}
}

func shortID(id string) string {
	_, hex, ok := strings.Cut(id, ":")
	if !ok {
		hex = id
	}
	return hex[:min(12, len(hex))]
}

// Import sets up islet images import.
func Import(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	quiet := flags.BoolP("quiet", "q", false, "no progress")
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return command.Usage("import needs an archive: islet images import ARCHIVE, or - for standard input")
		}
		for _, name := range args {
			if err := importArchive(ctx, t, name, *quiet); err != nil {
				return err
			}
		}
		return nil
	}
}

func importArchive(ctx context.Context, t *command.Tool, name string, quiet bool) error {
	body, total := t.Stdin, int64(0)
	if name != "-" {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			return command.ExitWith(command.ExitNotFound, fmt.Errorf("no file %s", name))
		}
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil {
			total = info.Size()
		}
		body = f
	}
	bar := terminal.NewProgress(t, quiet)
	sent := bar.CountBytes(body, name, total)
	return watchProgress(ctx, t, api.PathImageImport, url.Values{"name": {name}}, sent, bar, "import "+name)
}

// Pull sets up islet images pull.
func Pull(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	quiet := flags.BoolP("quiet", "q", false, "no progress")
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return command.Usage("pull needs an image: islet images pull IMAGE")
		}
		for _, ref := range args {
			if err := watchProgress(ctx, t, api.PathImagePull, url.Values{"ref": {ref}}, nil, terminal.NewProgress(t, *quiet),
				"pull "+ref); err != nil {
				return err
			}
		}
		return nil
	}
}

// watchProgress shows the progress of an import or pull, and then prints the images.
func watchProgress(ctx context.Context, t *command.Tool, path string, query url.Values, body io.Reader, bar *terminal.Progress,
	what string) error {
	defer bar.ClearBars()
	return client.Stream(ctx, t, http.MethodPost, path, query, body, func(p api.Progress) (bool, error) {
		switch {
		case p.Error != "":
			bar.ClearBars()
			if strings.Contains(p.Error, what+": ") { // the text may follow a reason such as RegistryUnavailable
				return true, errors.New(printable.Line(p.Error))
			}
			return true, fmt.Errorf("%s: %s", what, printable.Line(p.Error))
		case p.Done:
			bar.ClearBars()
			for _, i := range p.Images {
				fmt.Fprintln(t.Out, printable.Line(i))
			}
			return true, nil
		}
		if p.Ref != "" { // otherwise the value is a keep-alive line
			bar.UpdateItem(p.Ref, p.Status, p.Current, p.Total)
		}
		return false, nil
	})
}

// Prune sets up islet images prune.
func Prune(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	dry := flags.Bool("dry-run", false, "only list what would be removed")
	return func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			return command.Usage("prune takes no arguments; use islet images rm to remove single images")
		}
		q, verb := url.Values{}, "removed"
		if *dry {
			q, verb = url.Values{"dryRun": {"1"}}, "would remove"
		}
		var out api.Pruned
		if err := client.Call(ctx, t, http.MethodPost, api.PathImagePrune, q, nil, &out); err != nil {
			return err
		}
		say := func(verb string, i api.Image, why string) {
			fmt.Fprintf(t.Out, "%s %s (%s)%s\n", verb, printable.Line(strings.Join(Names(i), ", ")), api.FormatSize(i.Size),
				printable.Line(why))
		}
		var freed uint64
		for _, i := range out.Removed {
			say(verb, i, "")
			freed += i.Size
		}
		for _, k := range out.Kept {
			say("kept", k.Image, ": "+k.Why)
		}
		rest := ""
		switch {
		case *dry && out.Rest:
			rest = ", and data of no image: interrupted downloads, unreferenced layers and content"
		case out.Freed > 0:
			rest = fmt.Sprintf(", and %s of data that belonged to no image", api.FormatSize(out.Freed))
		}
		fmt.Fprintf(t.Stderr, "%s, %s%s\n", api.Pluralize(len(out.Removed), "image"), api.FormatSize(freed), rest)
		if out.Error != "" {
			return errors.New(printable.Line(out.Error))
		}
		return nil
	}
}

// Remove sets up islet images rm.
func Remove(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	force := flags.BoolP("force", "f", false, "also remove images that a pod needs; it cannot start again without them")
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return command.Usage("rm needs an image: islet images rm IMAGE")
		}
		var errs []error
		for _, ref := range args {
			var gone api.Image
			query := url.Values{"ref": {ref}}
			if *force {
				query.Set("force", "")
			}
			err := client.Call(ctx, t, http.MethodDelete, api.PathImages, query, nil, &gone)
			if err == nil {
				fmt.Fprintf(t.Out, "removed %s\n", printable.Line(ref))
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
}
