package bundle

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/printable"
)

func setupLock(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	update := flags.Bool("update", false, "also replace the digests that are in the file, by the digests that the tags have now")
	quiet := flags.BoolP("quiet", "q", false, "no progress")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) != 1:
			return command.Usage("bundle lock needs a directory: islet bundle lock DIR")
		case t.Inventory == nil:
			return errNoInventory
		}
		if err := checkSourceDir(args[0]); err != nil {
			return err
		}
		bar := terminal.NewProgress(t, *quiet)
		b := &build.Build{Dir: args[0], Inventory: t.Inventory, PlainSecrets: true, Registries: remote.Images{Config: registryConfig(t)},
			Progress: func(archive string, done int64) { bar.UpdateItem(archive, "reading", done, 0) }}
		changes, err := b.Lock(ctx, *update)
		bar.ClearBars()
		if err := errors.Join(err, b.Close()); err != nil {
			return err
		}
		for _, line := range changes {
			fmt.Fprintln(t.Out, printable.Line(line))
		}
		if len(changes) == 0 {
			fmt.Fprintln(t.Out, "nothing changes")
		}
		return nil
	}
}
