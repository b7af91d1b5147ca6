package describe

import (
	"errors"
	"fmt"

	"github.com/islet-edge/islet/edge/store"
)

// Machine returns the labels and the allocatable extended resources of the Node. *machine.Machine implements it.
type Machine interface {
	Labels() map[string]string
	Extended() map[string]int64
}

// Labels returns the labels of the Node.
func (a *Describer) Labels() map[string]string { return a.c.Machine.Labels() }

// Devices returns the allocatable devices by resource.
func (a *Describer) Devices() map[string]int64 { return a.c.Machine.Extended() }

// Recipient returns the node's public key for sealed Secrets, or "" if the node has no key yet.
func (a *Describer) Recipient() (string, error) {
	recipient, err := a.c.Store.Recipient()
	if errors.Is(err, store.ErrNoRecipient) {
		return "", nil
	}
	return recipient, err
}

// MakeRecipient returns the node's public key for sealed Secrets. It makes the key if there is none, unless the key would be lost at the
// next boot.
func (a *Describer) MakeRecipient() (string, error) {
	if a.c.Volatile == "" {
		return a.c.Store.MakeRecipient()
	}
	recipient, err := a.c.Store.Recipient()
	if errors.Is(err, store.ErrNoRecipient) {
		err = fmt.Errorf("a new key for sealed Secrets would be lost: %s", a.c.Volatile)
	}
	return recipient, err
}
