package node

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

// Devices sets up islet devices.
func Devices(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	all := flags.BoolP("all", "a", false, "also devices that no resource has, and what a match can name of each")
	noHeaders := flags.Bool("no-headers", false, "only the rows")
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, _ []string) error {
		var query url.Values
		if *all {
			query = url.Values{"all": {""}}
		}
		var devices []api.Device
		if err := client.Call(ctx, t, http.MethodGet, api.PathDevices, query, nil, &devices); err != nil {
			return err
		}
		if *output != "" {
			return terminal.PrintObject(t, *output, devices)
		}
		if len(devices) == 0 {
			fmt.Fprintln(t.Stderr,
				"no resource has devices: see 'devices' of the EdgeConfiguration, and 'islet devices --all' for what is there")
			return nil
		}
		printDevices(t, devices, *all, !*noHeaders)
		return nil
	}
}

func printDevices(t *command.Tool, devices []api.Device, all, headers bool) {
	var out terminal.Table
	if headers && all {
		out.AddRow("RESOURCE", "DEVICE", "NODES", "STATE", "SUBSYSTEM", "DRIVER", "USB", "USED BY")
	} else if headers {
		out.AddRow("RESOURCE", "DEVICE", "NODES", "STATE", "USED BY")
	}
	for _, d := range devices {
		state := string(d.State)
		if d.Shared > 1 {
			state += fmt.Sprintf(" %d/%d", len(d.Users), d.Shared)
		}
		row := []string{cmp.Or(d.Resource, "-"), cmp.Or(d.ID, "-"), cmp.Or(strings.Join(d.Nodes, ","), "-"), state}
		if all {
			usb := ""
			if d.Vendor != "" {
				usb = strings.TrimSpace(strings.Join([]string{d.Vendor + ":" + d.Product, d.Serial, d.Name}, " "))
			}
			row = append(row, cmp.Or(d.Subsystem, "-"), cmp.Or(d.Driver, "-"), cmp.Or(usb, "-"))
		}
		out.AddRow(append(row, cmp.Or(strings.Join(d.Users, ","), d.Message, "-"))...)
	}
	out.Print(t.Out)
}
