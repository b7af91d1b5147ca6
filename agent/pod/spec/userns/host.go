package userns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"os/user"
	"time"
)

// owner is the user whose subordinate IDs are those of pods.
const owner = "kubelet"

const (
	askTime   = 10 * time.Second // getsubids may ask a server
	maxAnswer = 64 << 10
)

// HostSpace is the space of this host: the subordinate IDs of the user kubelet where
// there is one and shadow's getsubids; else all IDs from perPod on. Once there is that
// user, an answer must come: to go on with all IDs might give to pods what is others'.
func HostSpace(perPod uint32, maxPods int) (Space, error) {
	_, err := user.Lookup(owner)
	if unknown := (user.UnknownUserError("")); errors.As(err, &unknown) {
		return allOf(perPod), nil
	}
	if err != nil {
		return Space{}, fmt.Errorf("look for the user %s: %w", owner, err)
	}
	program, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) {
		return allOf(perPod), nil
	}
	if err != nil {
		return Space{}, err
	}
	uids, err := subIDs(program, owner)
	if err != nil {
		return Space{}, fmt.Errorf("error retrieving additional uids for user %q: %w", owner, err)
	}
	gids, err := subIDs(program, "-g", owner)
	if err != nil {
		return Space{}, fmt.Errorf("error retrieving additional gids for user %q: %w", owner, err)
	}
	if uids != gids {
		return Space{}, fmt.Errorf("mismatched subuids and subgids for user %q: make them the same in /etc/subuid and /etc/subgid", owner)
	}
	r, err := parseSubIDs(uids)
	if err != nil {
		return Space{}, fmt.Errorf("subordinate IDs of user %q: %w", owner, err)
	}
	s := Space{r, perPod}
	return s, s.check(maxPods)
}

// subIDs runs getsubids, which bounds neither its time nor its answer.
func subIDs(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(out, maxAnswer+1))
	if len(b) > maxAnswer {
		err = errors.New("the answer is too long")
		cancel()
	}
	return string(b), errors.Join(err, cmd.Wait())
}
