package images

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

// List sets up islet images ls.
func List(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	noHeaders := flags.Bool("no-headers", false, "only the rows")
	quiet := flags.BoolP("quiet", "q", false, "print only the names")
	output := flags.StringP("output", "o", "", "wide (all users of an image), json or yaml")
	return func(ctx context.Context, _ []string) error {
		if !slices.Contains([]string{"", "wide", "json", "yaml"}, *output) {
			return command.Usage("output %q: must be wide, json or yaml", *output)
		}
		images, err := listImages(ctx, t, !*quiet)
		if err != nil {
			return err
		}
		if *output == "json" || *output == "yaml" {
			return terminal.PrintObject(t, *output, images)
		}
		var out terminal.Table
		if !*noHeaders && !*quiet {
			out.AddRow("IMAGE", "ID", "SIZE", "AGE", "USED BY")
		}
		shown := maxImageUsers
		if *output == "wide" {
			shown = math.MaxInt
		}
		for _, i := range images {
			for _, name := range Names(i) {
				if *quiet {
					out.AddRow(name)
				} else {
					out.AddRow(name, shortID(i.ID), api.FormatSize(i.Size), api.FormatAge(i.Added, t.Now()), usersText(i, shown))
				}
			}
		}
		out.Print(t.Out)
		return nil
	}
}

// listImages returns the images of the node. If details is true, the images contain their age and their
// users.
func listImages(ctx context.Context, t *command.Tool, details bool) (images []api.Image, err error) {
	q := url.Values{}
	if details {
		q.Set("details", "1")
	}
	err = client.Call(ctx, t, http.MethodGet, api.PathImages, q, nil, &images)
	return images, err
}

// maxImageUsers is the maximum number of users of an image in its row.
const maxImageUsers = 2

// usersText describes the users of an image. It names at most n of them.
func usersText(i api.Image, n int) string {
	text := strings.Join(i.Users[:min(n, len(i.Users))], ", ")
	switch more := len(i.Users) - n; {
	case more > 0:
		text += fmt.Sprintf(" and %d more", more)
	case text == "" && i.Pinned:
		return "<pinned>"
	case text == "":
		return "<none>"
	}
	return text
}
