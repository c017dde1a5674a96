"""`dataclass`, as the standard library has it, for what every opening of a queue loads.

The standard library's own loads `inspect` and compiles half a dozen functions per class: that was
half the time from `import penstock` to a queue that is open. Here a class compiles one function,
its `__init__`, and only when many objects of it are made. Checkers see the standard library's, and
so does a call of `dataclasses.fields`: what it looks for is made when it looks.
"""

# Checkers see the standard library's, so that nothing here has a type for them to read.
# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, ANN204

from __future__ import annotations

from penstock.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import replace as replace
else:
    NONE_GIVEN = object()

    class Field:
        """One field of a class."""

        __slots__ = ("default", "factory", "kw_only", "name", "type")

        def __init__(self, default=NONE_GIVEN, factory=None):
            self.default, self.factory = default, factory

    def field(*, default_factory):
        """A field whose default is made anew for each object."""
        return Field(factory=default_factory)

    def fields(record):
        """The fields of a class, or of an object, in order."""
        return tuple(record.__record_fields__.values())

    def replace(record, **changes):
        """An object like `record` with other values."""
        for name in record.__record_fields__:
            if name not in changes:
                changes[name] = getattr(record, name)
        return type(record)(**changes)

    def asdict(record):
        """A dictionary of the values, and of the values in them."""
        import dataclasses

        return dataclasses.asdict(record)

    def dataclass(*, frozen=False, slots=False, kw_only=False):
        """The decorator, with those of its options that are used here."""
        return lambda cls: _made(cls, frozen, slots, kw_only)

    def _made(cls, frozen, slots, kw_only):
        known = {}
        for base in reversed(cls.__mro__[1:]):
            known |= vars(base).get("__record_fields__", {})
        names = dict(vars(cls))
        own = []
        for name, kind in names.get("__annotations__", {}).items():
            if str(kind).startswith("ClassVar"):
                continue
            default = names.get(name, NONE_GIVEN)
            found = default if isinstance(default, Field) else Field(default)
            found.name, found.type, found.kw_only = name, kind, kw_only
            known[name] = found
            own.append(name)
            if slots or isinstance(default, Field):
                names.pop(name, None)
        names["__record_fields__"] = known
        names["__match_args__"] = tuple(n for n, found in known.items() if not found.kw_only)
        for name, method in _methods(frozen, names).items():
            names.setdefault(name, method)
        if slots:
            names["__slots__"] = tuple(name for name in own)
        names.pop("__dict__", None)
        names.pop("__weakref__", None)
        made = type(cls)(cls.__name__, cls.__bases__, names)
        made.__init__ = _first_init(made, frozen)
        return made

    def _methods(frozen, names):
        found = {"__repr__": _repr, "__eq__": _eq, "__hash__": _hash if frozen else None}
        found |= {"__dataclass_fields__": _Asked(0), "__dataclass_params__": _Asked(1)}
        if frozen:
            found |= {"__setattr__": _refuse, "__delattr__": _refuse}
            found |= {"__getstate__": _values, "__setstate__": _set_values}
        return found

    COMPILED_AFTER = 32
    """So many objects of a class are made without a function of its own. Compiling one takes as
    long as making a hundred objects this way, and most classes have a few."""

    def _first_init(cls, frozen):
        left = COMPILED_AFTER

        def __init__(self, *args, **kwargs):
            nonlocal left
            left -= 1
            known, plain = cls.__record_fields__, cls.__match_args__
            given = dict(zip(plain, args, strict=False))
            is_odd = len(args) > len(plain) or given.keys() & kwargs or kwargs.keys() - known.keys()
            if left < 0 or is_odd or not _fill(self, known, given | kwargs):
                # From now on without this detour; classes that derive from this one get it, too. It
                # also says what is wrong with the arguments.
                cls.__init__ = init = _init(cls, frozen)
                init(self, *args, **kwargs)
            elif hasattr(cls, "__post_init__"):
                self.__post_init__()

        return __init__

    def _fill(self, known, given):
        for name, one in known.items():
            if name in given:
                value = given[name]
            elif one.factory is not None:
                value = one.factory()
            elif one.default is not NONE_GIVEN:
                value = one.default
            else:
                return False
            object.__setattr__(self, name, value)
        return True

    def _init(cls, frozen):
        known = cls.__record_fields__
        names = {"set_": object.__setattr__, "NONE_GIVEN": NONE_GIVEN}
        slot = type(Field.name)
        plain, named, body = [], [], []
        for name, one in known.items():
            value = name
            text = name
            if one.factory is not None:
                names[f"make_{name}"] = one.factory
                text, value = (
                    f"{name}=NONE_GIVEN",
                    f"make_{name}() if {name} is NONE_GIVEN else {name}",
                )
            elif one.default is not NONE_GIVEN:
                names[f"usual_{name}"] = one.default
                text = f"{name}=usual_{name}"
            (named if one.kw_only else plain).append(text)
            if not frozen:
                body.append(f"self.{name} = {value}")
            elif isinstance(getattr(cls, name, None), slot):  # Half the time of the other way.
                names[f"set_{name}"] = getattr(cls, name).__set__
                body.append(f"set_{name}(self, {value})")
            else:
                body.append(f"set_(self, {name!r}, {value})")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        given = ", ".join(["self", *plain, *(["*", *named] if named else [])])
        exec(f"def __init__({given}):\n " + "\n ".join(body or ["pass"]), names)
        return names["__init__"]

    def _values(self):
        return [getattr(self, name) for name in self.__record_fields__]

    def _set_values(self, values):
        for name, value in zip(self.__record_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    def _repr(self):
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__record_fields__)
        return f"{type(self).__qualname__}({shown})"

    def _eq(self, other):
        return _values(self) == _values(other) if type(self) is type(other) else NotImplemented

    def _hash(self):
        return hash(tuple(_values(self)))

    def _refuse(self, name, *value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot change field {name!r}")

    class _Asked:
        """What the standard library's functions look for, made of a class like ours."""

        def __init__(self, which):
            self.which = which

        def __get__(self, record, cls):
            import dataclasses

            known = cls.__record_fields__
            twin = {"__annotations__": {name: one.type for name, one in known.items()}}
            for name, one in known.items():
                default = {} if one.default is NONE_GIVEN else {"default": one.default}
                default |= {} if one.factory is None else {"default_factory": one.factory}
                twin[name] = dataclasses.field(kw_only=one.kw_only, **default)
            is_frozen = cls.__setattr__ is _refuse
            made = dataclasses.dataclass(frozen=is_frozen)(type(cls.__name__, (), twin))
            return (made.__dataclass_fields__, made.__dataclass_params__)[self.which]
