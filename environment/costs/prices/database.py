"""Measured prices in an SQLite file that several processes may use at once.

    with PriceDatabase("costs.sqlite") as prices:
        here = prices.setting(Setting("cpu", "Intel(R) Xeon(R) ...", "onnxruntime", "1.31.1", threads=1))
        if (price := here.get(signature)) is None:
            price = here.put(signature, measure(signature))

Each price is written in a transaction of its own: a killed process loses only the price that it was measuring.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path

import platformdirs

from environment.costs.prices.price_list import PriceList
from environment.costs.prices.settings import Setting, setting_of
from environment.costs.prices.sqlite_file import DatabaseError, PriceFile
from environment.runtimes import OnnxRuntime


def default_database(*, make_folder: bool = True) -> Path:
    """Returns the path of the user's own database: `prices.sqlite` in RLFlow's cache folder (on Linux ~/.cache/rlflow).

    Raises:
      DatabaseError: the folder cannot be made.
    """
    folder = platformdirs.user_cache_path("rlflow", appauthor=False)
    try:
        if make_folder:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(
            f"Cannot make the folder {folder} for prices: {error.strerror or error}. Name another cache folder with "
            f"the environment variable XDG_CACHE_HOME."
        ) from error
    return folder / "prices.sqlite"


class PriceDatabase(PriceFile):
    """The prices of all settings in one file: see `PriceFile`."""

    def __enter__(self) -> PriceDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settings(self) -> dict[Setting, int]:
        """Returns the number of prices of each setting."""
        query = f"""select {_COLUMNS}, count(ms) from setting left join price on price.setting = setting.id
                    group by setting.id order by setting.id"""
        with self.statements() as file:
            rows = file.execute(query).fetchall()
        return {Setting(*row[:-1]): row[-1] for row in rows}

    def setting(self, setting: Setting) -> PriceList:
        """Returns the prices of a setting, which may have none yet. A file that has the setting is not written to."""
        query, values = f"select id from setting where ({_COLUMNS}) = ({_MARKS})", astuple(setting)
        with self.statements() as file:
            found = file.execute(query, values).fetchone()
            if found is None:
                file.execute(f"insert or ignore into setting ({_COLUMNS}) values ({_MARKS})", values)
                found = file.execute(query, values).fetchone()
        return PriceList(self, setting, found[0])

    def only_setting(self) -> Setting:
        """Returns the setting of the file, or that of this machine's CPU if there are several.

        Raises:
          DatabaseError: neither is there.
        """
        settings = list(self.settings())
        chosen = settings if len(settings) == 1 else [each for each in settings if _is_of_this_cpu(each)]
        if len(chosen) == 1:
            return chosen[0]
        listed = "; ".join(str(each) for each in settings) or "none"
        raise DatabaseError(
            f"{self.path}: expected the prices of one setting, or of one of this machine, got {listed}. Take one out "
            f"with `rlflow costs export`."
        )

    def copy_from(
        self, other: PriceDatabase, settings: Iterable[Setting] | None = None, *, kernels_alone: bool = False
    ) -> int:
        """Adds the prices of another file that this file does not have yet, and returns their number.

        Args:
          settings: settings to copy; None means all settings of the other file.
          kernels_alone: see `PriceList.add_from`.
        """
        chosen = other.settings() if settings is None else settings
        return sum(self.setting(each).add_from(other.setting(each), kernels_alone=kernels_alone) for each in chosen)


def _is_of_this_cpu(setting: Setting) -> bool:
    return setting.device == "cpu" and setting == setting_of(OnnxRuntime("cpu", setting.threads, setting.level))


_COLUMNS = "device, processor, runtime, version, threads, level"
_MARKS = "?, ?, ?, ?, ?, ?"
