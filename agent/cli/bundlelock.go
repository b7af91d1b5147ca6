package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/printable"
)

func setupBundleLock(t *tool, flags *pflag.FlagSet) runner {
	update := flags.Bool("update", false, "also replace the digests that are in the file, by the digests that the tags have now")
	quiet := flags.BoolP("quiet", "q", false, "no progress")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) != 1:
			return usage("bundle lock needs a directory: islet bundle lock DIR")
		case t.Inventory == nil:
			return errNoInventory
		}
		if err := checkSourceDir(args[0]); err != nil {
			return err
		}
		bar := t.newProgress(*quiet)
		b := &build.Build{Dir: args[0], Inventory: t.Inventory, PlainSecrets: true, Registries: remote.Images{Config: t.registryConfig()},
			Progress: func(archive string, done int64) { bar.updateItem(archive, "reading", done, 0) }}
		changes, err := b.Lock(ctx, *update)
		bar.clearBars()
		if err := errors.Join(err, b.Close()); err != nil {
			return err
		}
		for _, line := range changes {
			fmt.Fprintln(t.out, printable.Line(line))
		}
		if len(changes) == 0 {
			fmt.Fprintln(t.out, "nothing changes")
		}
		return nil
	}
}
