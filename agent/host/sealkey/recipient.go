package sealkey

import (
	"errors"
	"fmt"

	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/internal/config"
)

// printRecipient prints the node's public key for sealed Secrets. If there is no key file, printRecipient makes a plain one, but only
// while no agent runs: the agent may have the key of a removed file in memory.
func (env Env) printRecipient(place keyfile.Place, dirs config.Dirs) error {
	key, err := place.Read()
	if errors.Is(err, keyfile.ErrNone) {
		if err := makeKey(place, dirs); err != nil {
			return err
		}
		key, err = place.Read()
	}
	if err != nil {
		return err
	}
	id, err := key.Identity()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, id.Recipient())
	return err
}

// makeKey creates the key file while no agent runs.
func makeKey(place keyfile.Place, dirs config.Dirs) error {
	if err := checkDisk(dirs.State); err != nil {
		return err
	}
	locks, err := process.Lock(dirs.State, dirs.Run)
	if err != nil {
		return fmt.Errorf("there is no key yet, and an agent is running, so only the agent may make the key: "+
			"run islet --socket=SOCKET key recipient without flags of the agent: %w", err)
	}
	return errors.Join(place.Make(), locks.Close())
}
