package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.temporal.io/server/api/token/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// keyVariable is the environment variable with the path of the key of seals. Without it, the path
// is that of the policy with ".key". Servers that share clients need the same key.
const keyVariable = "IRIS_ACCESS_KEY"

// sealField is the number of the field with the seal in a task token. The server ignores fields that
// it does not know.
const sealField = 536_870_000

// keySize is the least size of the key in bytes.
const keySize = 32

// sealSize is the size of a seal in bytes.
const sealSize = sha256.Size

// seals mark what the server gives to one caller, so that no other caller can use it.
type seals struct{ key []byte }

// openSeals reads the key, and makes it if there is none.
func openSeals(path string) (*seals, error) {
	if _, err := os.Stat(path); err == nil {
		return readSeals(path)
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key)
	made, err := os.CreateTemp(filepath.Dir(path), ".key-") // 0600
	if err == nil {
		defer os.Remove(made.Name())
		_, err = made.Write(key)
		err = errors.Join(err, made.Close())
	}
	if err == nil {
		err = os.Link(made.Name(), path) // fails if another server was faster
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return readSeals(path)
}

func readSeals(path string) (*seals, error) {
	key, err := os.ReadFile(path)
	if err == nil && len(key) < keySize {
		err = fmt.Errorf("%s has fewer than %d bytes", path, keySize)
	}
	return &seals{key}, err
}

func (s *seals) sum(purpose, name string, data []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	for _, part := range [...]string{purpose, name} {
		mac.Write([]byte(part))
		mac.Write([]byte{0}) // no name has it
	}
	mac.Write(data)
	return mac.Sum(nil)
}

// sealTask returns a task token that only this caller can use.
func (s *seals) sealTask(name string, token []byte) []byte {
	sealed := protowire.AppendTag(append([]byte(nil), token...), sealField, protowire.BytesType)
	return protowire.AppendBytes(sealed, s.sum("task", name, token))
}

// openTask returns the workflow of a task token, if the token was given to this caller.
func (s *seals) openTask(name string, sealed []byte) (workflow string, ok bool) {
	size := len(protowire.AppendTag(nil, sealField, protowire.BytesType)) + 1 + sealSize
	if len(sealed) <= size {
		return "", false
	}
	raw := sealed[:len(sealed)-size]
	if !hmac.Equal(s.sealTask(name, raw), sealed) {
		return "", false
	}
	task := &token.Task{}
	if proto.Unmarshal(raw, task) != nil {
		return "", false
	}
	return task.WorkflowId, true
}

// sealPage returns the token of the next page of a history. It contains what the server reads next,
// which a client could otherwise choose.
func (s *seals) sealPage(name, id string, page []byte) []byte {
	if len(page) == 0 {
		return page
	}
	return append(s.sum("page", name+"\x00"+id, page), page...)
}

// openPage returns the token that `sealPage` sealed for this caller and this workflow.
func (s *seals) openPage(name, id string, sealed []byte) ([]byte, bool) {
	if len(sealed) == 0 {
		return nil, true
	}
	if len(sealed) < sealSize {
		return nil, false
	}
	page := sealed[sealSize:]
	return page, hmac.Equal(sealed[:sealSize], s.sum("page", name+"\x00"+id, page))
}
