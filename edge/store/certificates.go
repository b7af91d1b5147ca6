package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// A CertificateKey identifies a podCertificate source of a projected volume.
type CertificateKey struct {
	UID    types.UID // UID of the pod
	Volume string
	Source int // index of the source in the volume
}

// A Certificate is the state of a podCertificate source. It contains the certificate and the private key.
type Certificate struct {
	CertificateKey
	State []byte // encoded by edge/podcertificate
}

func (k CertificateKey) rowKey() []string {
	return []string{"certificates", string(k.UID), k.Volume, strconv.Itoa(k.Source)}
}

// PutCertificate encrypts a certificate and stores it durably. The certificate is removed together with its pod. After an error, the writer
// repeats the write until it succeeds.
func (s *Store) PutCertificate(ctx context.Context, c Certificate) error {
	err := s.commitRows(ctx, rowChange{keyOfRow(c.rowKey()...), func(tx *transaction) error {
		sealed, err := s.seal.encrypt(c.State, c.rowKey()...)
		if err != nil {
			return fmt.Errorf("seal: %w", err)
		}
		return tx.execOn(textRows("uid", string(c.UID)), `
			INSERT OR REPLACE INTO certificates (uid, volume, source, state)
			SELECT ?, ?, ?, ? WHERE `+podIsKnown,
			string(c.UID), c.Volume, c.Source, sealed, string(c.UID))
	}})
	if err != nil {
		return fmt.Errorf("store a certificate of pod %s: %w", c.UID, err)
	}
	return nil
}

// RemoveCertificates removes the certificates of a pod that has ended but is still stored. After an error, the writer repeats the removal
// until it succeeds.
func (s *Store) RemoveCertificates(ctx context.Context, uid types.UID) error {
	err := s.commitRows(ctx, rowChange{keyOfRow("certificates", string(uid)), func(tx *transaction) error {
		return tx.execOn(textRows("uid", string(uid)), "DELETE FROM certificates WHERE uid = ?", string(uid))
	}})
	if err != nil {
		return fmt.Errorf("remove the certificates of pod %s: %w", uid, err)
	}
	return nil
}

// Certificates returns all rows. It logs and omits rows that cannot be decrypted because the key is lost.
func (s *Store) Certificates(ctx context.Context) ([]Certificate, error) {
	var list []Certificate
	var lost unreadableRows
	err := s.query(ctx, func() { list, lost = nil, unreadableRows{} }, func(rows *sql.Rows) error {
		var c Certificate
		var uid string
		var sealed []byte
		if err := rows.Scan(&uid, &c.Volume, &c.Source, &sealed); err != nil {
			return err
		}
		c.UID = types.UID(uid)
		var err error
		if c.State, err = s.seal.decrypt(sealed, c.rowKey()...); err != nil {
			lost.add(err)
			return nil
		}
		list = append(list, c)
		return nil
	}, "SELECT uid, volume, source, state FROM certificates")
	if err != nil {
		return nil, fmt.Errorf("read the stored certificates of pods: %w", err)
	}
	lost.logCount(s, "certificates of pods", "new ones are requested")
	return list, nil
}
