package plugin

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// ipamAdd runs the command ADD of the IPAM plugin.
func (c *pluginCall) ipamAdd(ctx context.Context) (*current.Result, error) {
	path, err := c.Exec.FindInPath(c.conf.IPAM.Type, filepath.SplitList(c.Args.Path))
	if err != nil {
		return nil, err
	}
	result, err := invoke.ExecPluginWithResult(ctx, path, c.Args.StdinData, c.commandEnv("ADD"), c.Exec)
	if err != nil {
		return nil, fmt.Errorf("IPAM plugin %s: %w", c.conf.IPAM.Type, err)
	}
	if result == nil {
		return nil, fmt.Errorf("IPAM plugin %s: no result", c.conf.IPAM.Type)
	}
	return current.NewResultFromResult(result)
}

// runIPAM runs a command of the IPAM plugin that has no result, such as DEL.
func (c *pluginCall) runIPAM(ctx context.Context, command string) error {
	path, err := c.Exec.FindInPath(c.conf.IPAM.Type, filepath.SplitList(c.Args.Path))
	if err != nil {
		return err
	}
	if err := invoke.ExecPluginWithoutResult(ctx, path, c.Args.StdinData, c.commandEnv(command), c.Exec); err != nil {
		return fmt.Errorf("IPAM plugin %s: %w", c.conf.IPAM.Type, err)
	}
	return nil
}

func (c *pluginCall) commandEnv(command string) invoke.CNIArgs {
	return &invoke.Args{
		Command: command, ContainerID: c.Args.ContainerID, NetNS: c.Args.Netns,
		PluginArgsStr: c.Args.Args, IfName: c.Args.IfName, Path: c.Args.Path,
	}
}
