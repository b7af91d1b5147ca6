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

// owner is the user whose subordinate IDs are used for pods.
const owner = "kubelet"

const (
	askTime   = 10 * time.Second // getsubids may query a directory server
	maxAnswer = 64 << 10
)

// HostSpace returns the IDs that pods of this host may use. If the user named kubelet and the program getsubids
// exist, HostSpace returns the subordinate IDs of this user. In this case a failure of getsubids is an error,
// because other IDs may be subordinate IDs of other users. If the user or the program does not exist, HostSpace
// returns all IDs that are not below perPod.
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

// subIDs runs getsubids. Its run time and the size of its output are limited.
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
