package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	// minInterval is the minimum time between two renewals of a certificate by one process. The shortest life that k3s gives a certificate
	// is a day. A server that gives a shorter one must not wear out the flash of the node.
	minInterval = time.Hour
	// maxSleep is the maximum time between two checks of the certificates.
	maxSleep = time.Hour
	// refreshInterval is the interval of reading the CAs of the cluster.
	refreshInterval = 24 * time.Hour
	// firstRefresh is the time from the start of the process to the first such reading.
	firstRefresh = time.Hour
	// maxCA is the maximum size of a file with certificates in bytes.
	maxCA = 1 << 20

	firstAttempt, secondAttempt, maxAttempt = 5 * time.Second, time.Minute, 30 * time.Minute
)

// renew renews the certificates until ctx ends.
func (s *Supervisor) renew(ctx context.Context, r *k3s.Record) error {
	again := retry.Backoff{FirstWindow: firstAttempt, SecondWindow: secondAttempt, MaxWindow: maxAttempt}
	logged := ""
	for ctx.Err() == nil {
		due, left := s.due()
		if len(due) == 0 && s.cfg.Link.Now().Sub(s.refreshed) < refreshInterval {
			again.Reset()
			wait := time.NewTimer(min(left, maxSleep))
			select {
			case <-ctx.Done():
			case <-s.renewNow:
			case <-wait.C:
			}
			wait.Stop()
			continue
		}
		err := s.attempt(ctx, r, due)
		if still, _ := s.due(); err == nil && len(still) > 0 {
			err = errors.New("a certificate must be renewed again at once")
		}
		if err == nil {
			again.Reset()
			logged = ""
			continue
		}
		if text := fmt.Sprint(due, err); text != logged && ctx.Err() == nil {
			logged = text
			s.cfg.Log.Warn("the certificates cannot be renewed at the k3s server yet", "server", r.Server, "due", due, "error", err)
		}
		_, _ = again.Wait(ctx, 0, s.renewNow)
	}
	return nil
}

// due returns the certificates that must be renewed now, and the time until the next one.
func (s *Supervisor) due() (due []k3s.Purpose, left time.Duration) {
	now, left := s.cfg.Link.Now(), maxSleep
	for _, use := range []k3s.Purpose{k3s.ForClient, k3s.ForServing} {
		pair, written, err := s.cfg.Directory.Pair(use)
		if err != nil {
			due = append(due, use)
			continue
		}
		issued, known := s.issued[use]
		if !known {
			issued = written
		}
		wait := k3s.RenewAt(pair.Leaf, issued).Sub(now)
		wait = max(wait, s.paces[use].Left(now))
		if use == k3s.ForServing {
			ips := s.addresses()
			if !pair.Covers(ips) && !slices.Equal(ips, s.requested) {
				wait = min(wait, s.addressPace.Left(now))
			}
		}
		if wait <= 0 {
			due = append(due, use)
		} else {
			left = min(left, wait)
		}
	}
	return due, max(left, time.Second)
}

// noteIssued records that a certificate was received, and its addresses.
func (s *Supervisor) noteIssued(use k3s.Purpose, pair *k3s.Pair, ips []netip.Addr) {
	now := s.cfg.Link.Now()
	s.issued[use] = now
	s.paces[use].Succeeded(now, minInterval)
	if use == k3s.ForServing && !slices.Equal(ips, s.requested) {
		if s.requested != nil {
			s.addressPace.Succeeded(now, minInterval)
		}
		s.requested = ips
	}
	s.cfg.Log.Info("the k3s server has renewed a certificate", "certificate", use, "until", pair.Leaf.NotAfter, "sharedKey", pair.SharedKey)
	if life := pair.Leaf.NotAfter.Sub(now); life < minInterval && !s.warned {
		s.warned = true
		s.cfg.Log.Warn("the k3s server issues certificates that end before the agent renews them", "life", life)
	}
}

// attempt renews certificates, and reads the CAs. It authenticates with the node's certificate. If the server refuses that, it uses the
// token, if the node has kept one. If a command replaces the directory of the cluster meanwhile, nothing is written to either directory.
func (s *Supervisor) attempt(ctx context.Context, r *k3s.Record, due []k3s.Purpose) error {
	d, err := s.cfg.Directory.Open()
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: run islet join", err)
	}
	if err != nil {
		return err
	}
	defer d.Close()
	now, err := d.Record()
	if err != nil {
		return err
	}
	if *now != *r {
		return errors.New("the node has joined a cluster again: restart the agent (systemctl restart islet)")
	}
	ca, err := serverCA(d.Directory)
	if err != nil {
		return err
	}
	cfg := k3s.Config{Server: r.Server, CA: ca, Now: s.cfg.Link.Now}
	if cfg.Certificate = s.cfg.Link.ClientCertificate(); cfg.Certificate == nil {
		if pair, _, err := d.Pair(k3s.ForClient); err == nil {
			cfg.Certificate = pair.TLS()
		}
	}
	err = fmt.Errorf("the node has no client certificate in %s", s.cfg.Directory)
	if cfg.Certificate != nil {
		if err = s.renewWith(ctx, d, r, cfg, due); !k3s.IsRefused(err) {
			return err
		}
	}
	token, tokenErr := d.Token()
	if tokenErr != nil {
		return errors.Join(err, tokenErr)
	}
	if token == (k3s.Token{}) {
		return fmt.Errorf("%w; run islet join again, and with --keep-token if the server does not accept certificates of nodes", err)
	}
	cfg.Certificate, cfg.Token = nil, token
	return s.renewWith(ctx, d, r, cfg, due)
}

// renewWith is like attempt, with given credentials.
func (s *Supervisor) renewWith(ctx context.Context, d *k3s.Handle, r *k3s.Record, cfg k3s.Config, due []k3s.Purpose) error {
	c, err := k3s.New(cfg)
	if err != nil {
		return err
	}
	clients, servers, err := c.CAs(ctx)
	if err != nil {
		return err
	}
	if err := s.replaceCAs(ctx, d, cfg, clients, servers); err != nil {
		return err
	}
	password, err := k3s.ReadPassword(r.PasswordFile)
	if err != nil && len(due) > 0 {
		return fmt.Errorf("the password of the node: %w", err)
	}
	n := k3s.Node{Name: r.Node, Password: password, IPs: s.addresses()}
	for _, use := range due {
		signers := servers
		if use == k3s.ForClient {
			signers = clients
		}
		pair, err := c.Issue(ctx, use, n, signers)
		if err != nil {
			return err
		}
		if use == k3s.ForClient {
			if err := s.prove(ctx, r, cfg, pair); err != nil {
				return err
			}
		}
		if err := d.Replace(d.PairFile(use), pair.PEM); err != nil {
			return err
		}
		s.noteIssued(use, pair, n.IPs)
	}
	return nil
}

// prove returns an error unless the API server accepts a certificate.
func (s *Supervisor) prove(ctx context.Context, r *k3s.Record, cfg k3s.Config, pair *k3s.Pair) error {
	cfg.Certificate, cfg.Token = pair.TLS(), k3s.Token{}
	c, err := k3s.New(cfg)
	if err != nil {
		return err
	}
	if err := c.Prove(ctx, r.APIServer, r.Node); err != nil {
		return fmt.Errorf("the API server does not accept the new certificate, so the old one stays: %w", err)
	}
	return nil
}

// replaceCAs stores the CAs of the cluster. A CA of servers that does not verify the server is not stored, because the node could not
// connect any more.
func (s *Supervisor) replaceCAs(ctx context.Context, d *k3s.Handle, cfg k3s.Config, clients, servers []byte) error {
	if string(servers) != string(cfg.CA) {
		cfg.CA = servers
		c, err := k3s.New(cfg)
		if err == nil {
			_, _, err = c.CAs(ctx)
		}
		if err != nil {
			return fmt.Errorf("the server is not verified by the CA that it has sent, so the old CA stays: %w", err)
		}
	}
	if err := errors.Join(d.Replace(d.ServerCA(), servers), d.Replace(d.ClientCA(), clients)); err != nil {
		return err
	}
	s.refreshed = s.cfg.Link.Now()
	return nil
}

// serverCA reads the CA of servers.
func serverCA(d k3s.Directory) ([]byte, error) {
	ca, err := regular.Read(d.ServerCA(), maxCA)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: run islet join", err)
	}
	return ca, err
}
