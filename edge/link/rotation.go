package link

import (
	"context"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

// run obtains and renews the certificate until ctx ends.
func (i *identity) run(ctx context.Context) error {
	again := retry.Backoff{FirstWindow: firstAttempt, MaxWindow: maxAttempt}
	for ctx.Err() == nil {
		select {
		case <-i.files: // load below handles earlier changes
		default:
		}
		i.tryOtherPair(ctx)
		before := i.readKubeconfigs() // load and the attempts use these files or later ones
		usable := i.load()
		switch {
		case !usable && i.link.cfg.BootstrapKubeconfig != "":
			if wait := i.untilBootstrap(); wait > 0 {
				sleep(ctx, wait, i.files)
				continue
			}
			i.attemptCertificate(ctx, "bootstrap", i.bootstrap, before, &again)
		case usable && i.isDue():
			if s, moved := i.link.states.get(); s.Phase != Up {
				sleep(ctx, maxSleep, i.files, moved)
				continue
			}
			if wait := i.rotations.Left(); wait > 0 {
				sleep(ctx, min(wait, maxSleep), i.files)
				continue
			}
			i.attemptCertificate(ctx, "rotate the client certificate", i.rotate, before, &again)
		default:
			again.Reset()
			sleep(ctx, i.untilNext(), i.files)
		}
	}
	return nil
}

// errFilesChanged ends the wait for a certificate when the kubeconfigs have changed.
var errFilesChanged = errors.New("the kubeconfigs have changed")

// attemptCertificate makes one attempt to obtain a certificate. After a failure, it waits until the next attempt is due. A signing request
// can wait for its approval for ever, so the attempt also ends when the files contain other credentials than before. It continues if a file
// was removed or cannot be read, because it needs the file no more. If the request is still needed, the next attempt continues with it.
func (i *identity) attemptCertificate(ctx context.Context, what string, do func(context.Context) error, before [2]*rest.Config,
	again *retry.Backoff) {
	attempt, end := context.WithCancelCause(ctx)
	watched, signalled := make(chan struct{}), false
	go func() {
		defer close(watched)
		for {
			select {
			case <-attempt.Done():
				return
			case <-i.files:
				signalled = true
				for n, now := range i.readKubeconfigs() {
					if now != nil && !areEqual(now, before[n]) {
						end(errFilesChanged)
					}
				}
			}
		}
	}()
	err := do(attempt)
	end(nil)
	<-watched
	if signalled {
		i.filesChanged() // ends the sleep below, as without the goroutine
	}
	outdated := errors.Is(context.Cause(attempt), errFilesChanged)
	switch {
	case err == nil || ctx.Err() != nil:
		again.Reset()
		i.loggedFailure = ""
		return
	case outdated && (errors.Is(err, context.Canceled) || errors.Is(err, errFilesChanged)):
		return
	}
	i.failures.Add(1)
	if err.Error() != i.loggedFailure {
		i.loggedFailure = err.Error()
		i.log.Warn("a client certificate cannot be obtained yet", "doing", what, "error", err)
	}
	wait := again.Next(kube.RetryAfter(err))
	if errors.Is(err, errDenied) {
		wait = retry.Jitter(afterDenial)
	}
	i.link.clock.sleep(ctx, wait, i.files, i.link.cfg.NetworkChanged)
}

// readKubeconfigs returns the credentials in the kubeconfig and in the bootstrap kubeconfig. They are nil if they cannot be read. Unlike
// read, it changes no file, because an attempt may be saving its certificate at the same time.
func (i *identity) readKubeconfigs() (both [2]*rest.Config) {
	for n, path := range []string{i.link.cfg.Kubeconfig, i.link.cfg.BootstrapKubeconfig} {
		if config, err := readRest(path); err == nil {
			both[n] = config
		}
	}
	return both
}

// isDue reports whether the certificate should be rotated.
func (i *identity) isDue() bool {
	i.mu.Lock()
	leaf := i.leaf
	i.mu.Unlock()
	return i.link.cfg.Rotate && leaf != nil && !i.link.clock.Now().Before(rotateAt(leaf))
}

// untilNext returns the time until the certificate must be rotated. If rotation is off, it returns the time until the certificate expires.
func (i *identity) untilNext() time.Duration {
	i.mu.Lock()
	leaf := i.leaf
	i.mu.Unlock()
	if leaf == nil {
		return maxSleep
	}
	next := leaf.NotAfter.Add(time.Second)
	if i.link.cfg.Rotate {
		next = rotateAt(leaf)
	}
	if left := next.Sub(i.link.clock.Now()); left > 0 {
		return min(left, maxSleep)
	}
	return maxSleep // the certificate has expired and cannot be renewed
}

// rotateAt returns the time at which a certificate is rotated: after 70 to 90 % of its life. The time is derived from the serial number. It
// is therefore the same after a restart, and differs between nodes.
func rotateAt(leaf *x509.Certificate) time.Time {
	var seed [2]uint64
	for n, b := range leaf.SerialNumber.Bytes() {
		seed[n%2] = seed[n%2]<<8 ^ seed[n%2]>>56 ^ uint64(b)
	}
	at := 0.7 + 0.2*rand.New(rand.NewPCG(seed[0], seed[1])).Float64()
	return leaf.NotBefore.Add(time.Duration(at * float64(leaf.NotAfter.Sub(leaf.NotBefore))))
}
