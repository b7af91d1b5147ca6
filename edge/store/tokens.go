package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A TokenKey identifies a token by its pod and by the parameters of the request.
type TokenKey struct {
	UID      types.UID // UID of the pod
	Audience string    // empty for the server's default
	Seconds  int64     // expirationSeconds
}

// A Token is a service account token of a pod.
type Token struct {
	TokenKey
	Token           string
	Issued, Expires time.Time // in whole seconds of the server's clock
}

func (k TokenKey) rowKey() []string {
	return []string{"tokens", string(k.UID), k.Audience, strconv.FormatInt(k.Seconds, 10)}
}

// PutToken encrypts a token and stores it durably. The token is removed together with its pod. After an error, the writer repeats the write
// until it succeeds.
func (s *Store) PutToken(ctx context.Context, t Token) error {
	err := s.commitRows(ctx, rowChange{keyOfRow(t.rowKey()...), func(tx *transaction) error {
		sealed, err := s.seal.encrypt([]byte(t.Token), t.rowKey()...)
		if err != nil {
			return fmt.Errorf("seal: %w", err)
		}
		return tx.execOn(textRows("uid", string(t.UID)), `
			INSERT OR REPLACE INTO tokens (uid, audience, seconds, issued, expires, token)
			SELECT ?, ?, ?, ?, ?, ? WHERE `+podIsKnown,
			string(t.UID), t.Audience, t.Seconds, t.Issued.Unix(), t.Expires.Unix(), sealed, string(t.UID))
	}})
	if err != nil {
		return fmt.Errorf("store a token of pod %s: %w", t.UID, err)
	}
	return nil
}

// Tokens returns all rows. It logs and omits rows that cannot be decrypted because the key is lost.
func (s *Store) Tokens(ctx context.Context) ([]Token, error) {
	var list []Token
	var lost unreadableRows
	err := s.query(ctx, func() { list, lost = nil, unreadableRows{} }, func(rows *sql.Rows) error {
		var t Token
		var uid string
		var issued, expires int64
		var sealed []byte
		if err := rows.Scan(&uid, &t.Audience, &t.Seconds, &issued, &expires, &sealed); err != nil {
			return err
		}
		t.UID, t.Issued, t.Expires = types.UID(uid), time.Unix(issued, 0), time.Unix(expires, 0)
		token, err := s.seal.decrypt(sealed, t.rowKey()...)
		if err != nil {
			lost.add(err)
			return nil
		}
		t.Token = string(token)
		list = append(list, t)
		return nil
	}, "SELECT uid, audience, seconds, issued, expires, token FROM tokens")
	if err != nil {
		return nil, fmt.Errorf("read the stored tokens: %w", err)
	}
	lost.logCount(s, "service account tokens", fetchedAgain)
	return list, nil
}
