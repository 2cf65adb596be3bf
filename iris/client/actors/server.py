"""Serves the methods of objects in a task to other programs of the task's job."""

import contextlib
import io
import os
import pickle
import socket
import ssl
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

import cloudpickle
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from iris.client.actors.wire import RUN, Served, server_context, stored_certificate
from iris.client.blocking.context import JobContext, context
from iris.client.functions import run
from iris.model import names, store_paths
from iris.model.errors import InvalidValue, IrisError
from iris.storage.object_store import Store

#: The maximum number of new connections that wait until the server accepts them.
_BACKLOG = 1024
#: The maximum number of connections of callers that have not proved yet that they have the key of
#: the job's actors. If there are more, the server closes the oldest of them.
MOST_UNPROVED = 256
#: The first and the last moment at which the certificate is valid. It never expires, because the
#: clocks of hosts may be wrong.
_CERTIFICATE_VALID = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


class ActorServer:
    """Serves actors: objects whose public methods other programs of the job call, with
    `ActorClient` or `ActorPool`.

    with ActorServer() as server:
        server.register("replay", ReplayBuffer())
        server.serve()
    """

    def __init__(self, host: str = "", port: int = 0) -> None:
        """Creates a server in a task.

        Args:
            host: the address to listen at; empty for the address at which other hosts reach this
                one.
            port: the port to listen at, such as one of `--port`; 0 for any free port.

        Raises:
            IrisError: the program does not run in a job.
        """
        self._context: JobContext = context()
        self._host = host or self._context.address or "127.0.0.1"
        self._port = port
        self._actors: dict[
            str, tuple[Any, contextlib.AbstractContextManager[Any], Mapping[str, str]]
        ] = {}
        self._listening: socket.socket | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        #: Connections of callers that have not proved yet that they have the key of the job's
        #: actors, the oldest first.
        self._unproved: dict[Served, None] = {}
        #: Connections of callers that have proved that they have the key of the job's actors. They
        #: stay open between calls.
        self._callers: set[Served] = set()

    def register(
        self,
        name: str,
        actor: object,
        metadata: Mapping[str, str] = {},
        *,
        concurrent: bool = False,
    ) -> None:
        """Adds an actor before the server starts. Actors in several tasks may have the same name.

        Args:
            name: the name by which other programs find the actor.
            actor: any object; its public methods can be called.
            metadata: facts for the programs that look for the actor.
            concurrent: whether calls of several callers run at the same time. Otherwise they run
                one after the other.

        Raises:
            RuntimeError: the server was started already.
            InvalidValue: the server has an actor of this name.
        """
        if self._listening is not None:
            raise RuntimeError(f"the server has started; register actor {name!r} before its start")
        if name in self._actors:
            raise InvalidValue(
                "actor", name, "is registered twice", "give each actor a name of its own"
            )
        self._actors[name] = (
            actor,
            contextlib.nullcontext() if concurrent else threading.Lock(),
            dict(metadata),
        )

    def serve_background(self) -> int:
        """Serves the actors in threads, and registers their endpoints. Returns the port.

        Raises:
            RuntimeError: the server was started before.
            OSError: the port is in use.
            Rejected: a name cannot be the name of an endpoint.
            Unreachable: the cluster does not answer.
        """
        if self._listening is not None:
            raise RuntimeError("the server has started already")
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listening = socket.create_server(
            (self._host, self._port), family=family, backlog=_BACKLOG
        )
        port: int = self._listening.getsockname()[1]
        try:
            client, loop = self._context.client.parts
            uid = os.environ[names.ENV_JOB_UID]
            address = f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"
            pem = loop.run(_make_certificate(Store(client.record.store), uid))
            threading.Thread(
                target=self._accept,
                args=(self._listening, server_context(pem, address)),
                name="iris-actors",
                daemon=True,
            ).start()
            for name, (_, _, metadata) in self._actors.items():
                self._context.register_endpoint(name, address, {**metadata, RUN: uid})
        except BaseException:
            self._listening.close()
            raise
        return port

    def serve(self) -> None:
        """Serves the actors until `stop` is called, by default until the task ends.

        Raises:
            OSError, Rejected, Unreachable: the server cannot be started, as in `serve_background`.
        """
        if self._listening is None:
            self.serve_background()
        self._stopped.wait()

    def stop(self) -> None:
        """Withdraws the endpoints and ends the server. Running calls finish and are answered; no
        new call begins.
        """
        if self._listening is None or self._stopped.is_set():
            return
        with self._lock:
            self._stopped.set()
            for caller in self._callers:
                caller.shut_down(socket.SHUT_RD)  # its thread closes it, after a call that runs
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for name in self._actors:
            with contextlib.suppress(IrisError):  # it ends with the attempt at the latest
                self._context.withdraw_endpoint(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- in threads
    # ----------------------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket, context: ssl.SSLContext) -> None:
        while not self._stopped.is_set():
            try:
                accepted, _ = listening.accept()
            except OSError:  # it was closed, or there are too many files
                if self._stopped.wait(0.1):
                    return
                continue
            with contextlib.suppress(OSError):  # the caller has gone away
                self._begin(Served(accepted, context))

    def _begin(self, caller: Served) -> None:
        with self._lock:
            if len(self._unproved) >= MOST_UNPROVED:
                next(iter(self._unproved)).shut_down(socket.SHUT_RDWR)
            self._unproved[caller] = None
        try:
            threading.Thread(
                target=self._serve, args=(caller,), name="iris-actor-calls", daemon=True
            ).start()
        except RuntimeError:  # the task has too many threads
            self._proved(caller)
            caller.close()

    def _serve(self, caller: Served) -> None:
        with contextlib.closing(caller), contextlib.suppress(OSError, EOFError):
            try:
                caller.handshake()
            finally:
                self._proved(caller)
            with self._lock:
                self._callers.add(caller)
            try:
                while not self._stopped.is_set():
                    request = caller.receive()
                    if not self._stopped.is_set():
                        caller.send(self._answer(request))
            finally:
                with self._lock:
                    self._callers.discard(caller)

    def _proved(self, caller: Served) -> None:
        with self._lock:
            self._unproved.pop(caller, None)

    def _answer(self, request: bytes) -> bytes:
        """Calls the method of a request, and returns its pickled value or error."""
        out = io.BytesIO()
        try:
            call = pickle.loads(request)  # noqa: S301 the caller has the key
            name, method, args, kwargs = call
            actor, lock, _ = self._actors[name]
            if method.startswith("_"):
                raise AttributeError(f"{method!r} of actor {name!r} is not public")
            with lock:
                value = getattr(actor, method)(*args, **kwargs)
        except Exception as error:  # of the actor, which may raise anything
            run.write_error(out, error, cloudpickle)
        except BaseException as error:  # such as SystemExit: it would end the caller
            run.write_error(
                out,
                RuntimeError(f"the call ended with {type(error).__name__}: {error}"),
                cloudpickle,
            )
        else:
            with contextlib.suppress(TypeError):  # the caller gets it
                run.write_value(out, value, f"{name}.{method}", cloudpickle)
        return out.getvalue()


async def _make_certificate(store: Store, job_run: str) -> bytes:
    """Returns the certificate and the private key of a job's actors, as PEM. The first task that
    asks for them creates them.
    """
    await store.put_new(store_paths.actor_certificate(job_run), new_certificate())
    return await stored_certificate(store, job_run)


def new_certificate() -> bytes:
    """Returns a new self-signed certificate and its private key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "actors of an Iris job")])
    certificate = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), *_CERTIFICATE_VALID
    ).sign(key, SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)
