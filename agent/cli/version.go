package cli

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

func setupVersion(t *tool, flags *pflag.FlagSet) runner {
	client := flags.Bool("client", false, "print only the version of this program")
	return func(ctx context.Context, _ []string) error {
		fmt.Fprintf(t.out, "islet %s\n", t.Version)
		if *client {
			return nil
		}
		var st api.Status
		if err := t.get(ctx, api.PathStatus, &st); err != nil {
			fmt.Fprintf(t.Stderr, "agent: %s\n", errorText(err))
			return nil
		}
		fmt.Fprintf(t.out, "agent %s\n", printable.Line(st.Version))
		return nil
	}
}
