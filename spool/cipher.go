package spool

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4/pb"
	"google.golang.org/protobuf/proto"
)

// How Badger (v4) encrypts, for our own reader: AES in counter mode. In a log
// the counter begins with 12 bytes of the log's header and the offset of the
// record; header and checksum of a record are in the clear.

// dataKeyID is Badger's number of the only data key of a segment.
const dataKeyID = 1

// dataKeyMade is the time of creation in the registry, the year 9999: Badger
// never finds the key too old, whatever the clock says, and draws no other.
const dataKeyMade = 253402300799

const registrySanity = "Hello Badger"

// newRegistry is a KEYREGISTRY with one data key:
//
//	iv(16) sanity(12, encrypted) {length(4) crc32c(4) DataKey}…
func newRegistry(key, dataKey []byte) ([]byte, error) {
	iv := make([]byte, 2*aes.BlockSize)
	rand.Read(iv) // never fails
	out, iv := iv[:aes.BlockSize:aes.BlockSize], iv[aes.BlockSize:]
	out = append(out, crypt(key, out, []byte(registrySanity))...)
	dk, err := proto.Marshal(&pb.DataKey{KeyId: dataKeyID, Data: crypt(key, iv, dataKey), Iv: iv, CreatedAt: dataKeyMade})
	if err != nil {
		return nil, err
	}
	out = binary.BigEndian.AppendUint32(out, uint32(len(dk)))
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(dk, castagnoli))
	return append(out, dk...), nil
}

// parseRegistry returns the data keys; ok is false if key does not fit (nil: not
// encrypted) or there is nothing to fit. What is damaged behind the start is
// left out.
func parseRegistry(data, key []byte) (keys map[uint64][]byte, ok bool) {
	const start = aes.BlockSize + len(registrySanity)
	if len(data) < start {
		return nil, false
	}
	if string(crypt(key, data[:aes.BlockSize], data[aes.BlockSize:start])) != registrySanity {
		return nil, false
	}
	keys = map[uint64][]byte{}
	for data = data[start:]; len(data) >= 8; {
		size, sum := binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:])
		if data = data[8:]; uint64(size) > uint64(len(data)) || crc32.Checksum(data[:size], castagnoli) != sum {
			return nil, false
		}
		var dk pb.DataKey
		if proto.Unmarshal(data[:size], &dk) != nil {
			return nil, false
		}
		if len(dk.Iv) == aes.BlockSize {
			keys[dk.KeyId] = crypt(key, dk.Iv, dk.Data)
		}
		data = data[size:]
	}
	return keys, true
}

// crypt encrypts or decrypts a copy of data; without a key it is the copy.
func crypt(key, iv, data []byte) []byte {
	out := append([]byte(nil), data...)
	if block, err := aes.NewCipher(key); err == nil {
		cipher.NewCTR(block, iv).XORKeyStream(out, out)
	}
	return out
}

// logKey is the number of the data key of a log; 0: not encrypted.
func logKey(log []byte) uint64 {
	if len(log) < logHeader {
		return 0
	}
	return binary.BigEndian.Uint64(log)
}

// logsEncrypted reports whether a log of the segment is.
func logsEncrypted(dir string) bool {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !isVlog(e.Name()) && !isMem(e.Name()) {
			continue
		}
		if head, err := readSmall(filepath.Join(dir, e.Name())); err == nil && logKey(head) != 0 {
			return true
		}
	}
	return false
}

// logCipher decrypts the records of one log.
type logCipher struct {
	block cipher.Block
	iv    [aes.BlockSize]byte // the log's part of it
}

// newLogCipher returns nil for a log that is not encrypted, or whose data key is
// lost: what is read of it does not parse then.
func newLogCipher(header []byte, s secret) *logCipher {
	id := logKey(header)
	block, err := aes.NewCipher(s.dataKeys[id])
	if id == 0 || err != nil {
		return nil
	}
	c := &logCipher{block: block}
	copy(c.iv[:], header[8:logHeader])
	return c
}

// crypt encrypts or decrypts, in place, key and value of the record at off.
func (c *logCipher) crypt(off int64, keyValue []byte) {
	iv := c.iv
	binary.BigEndian.PutUint32(iv[aes.BlockSize-4:], uint32(off))
	cipher.NewCTR(c.block, iv[:]).XORKeyStream(keyValue, keyValue)
}
