# %% [markdown]
# A tour of topics in Spark: write a table to a topic, read it, join it in SQL with a table, carry a
# stream from topic to topic, write a summary back exactly once, and plot it.
#
#     pip install "geminga[spark,server]" matplotlib       # and Java 17 or newer
#     python examples/spark_tour.py --plot tour.png
#
# It starts a broker of its own, in memory; `--service-url pulsar://...` takes another one, whose
# namespace public/default must allow deduplication and keep messages. Cells begin with `# %%`: open
# the file as a notebook in VS Code, PyCharm or Jupyter (jupytext), or run it as it stands.

# %%
import argparse
import contextlib
import datetime
import math
import os
import random
import sys
import tempfile
import uuid

import matplotlib

matplotlib.use("Agg")

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
from pyspark.sql import SparkSession

import geminga.testing

arguments = argparse.ArgumentParser(description="A tour of topics in Spark.")
arguments.add_argument("--service-url", help="a broker that runs; else one is started in memory")
arguments.add_argument("--plot", default="spark_tour.png", help="where the picture goes")
chosen = arguments.parse_args()

cleanup = contextlib.ExitStack()
SETTINGS = {
    # Keep what nobody subscribes to, and let producers be recognised when they write again.
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "brokerDeduplicationEnabled": "true",
}
service_url = chosen.service_url or str(cleanup.enter_context(geminga.testing.broker(SETTINGS)))

# Spark's workers must be this Python, which has geminga in it.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local[2]")
    .appName("spark_tour")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
cleanup.callback(spark.stop)

run = uuid.uuid4().hex[:8]
readings_topic = f"persistent://public/default/readings-{run}"
frosts_topic = f"persistent://public/default/frosts-{run}"
hours_topic = f"persistent://public/default/hours-{run}"

# %% [markdown]
# ## A table becomes a topic
# Four weather stations report every ten minutes for five days of January. Columns whose names begin
# with two underscores describe the message: its key and its event time. All others are its value,
# by an Avro schema that is made from them.

# %%
STATIONS = [
    ("ams", "Amsterdam", 4.0, 2.0),
    ("bri", "Brig", -1.5, 5.0),
    ("cor", "Córdoba", 10.0, 6.0),
    ("osl", "Oslo", -5.0, 2.5),
]
stations = spark.createDataFrame(STATIONS, "station string, city string, mean double, swing double")

chance = random.Random(7)
rows = []
for step in range(5 * 24 * 6):
    hour = step / 6
    for station, _, mean, swing in STATIONS:
        daily = swing * math.sin((hour - 9) / 24 * 2 * math.pi)
        slow = 2.5 * math.sin(hour / 60 + mean)
        rows.append((station, round(mean + daily + slow + chance.gauss(0, 0.5), 2), step * 600))

measured = spark.createDataFrame(rows, "station string, celsius double, second long").selectExpr(
    "station",
    "celsius",
    "station as __key",
    "timestamp_seconds(1767571200 + second) as __eventTime",  # from 5 January 2026 on
)
measured.write.format("pulsar").mode("append").options(
    **{"service.url": service_url, "topic": readings_topic}
).save()

# %% [markdown]
# ## A topic is a table
# The columns come from the topic's schema, and what describes messages stands behind them.

# %%
pulsar = {"service.url": service_url}
readings = spark.read.format("pulsar").options(**pulsar, topic=readings_topic).load()
readings.printSchema()
print(readings.count(), "readings")
assert readings.count() == len(rows)

# %% [markdown]
# ## SQL: a topic joined with a table

# %%
readings.createOrReplaceTempView("readings")
stations.createOrReplaceTempView("stations")
hours = spark.sql(
    """
    select city, date_trunc('hour', __eventTime) as hour,
        cast(round(avg(cast(celsius as decimal(6, 2))), 2) as double) as celsius
    from readings join stations using (station)
    group by city, hour
    """
)
hours.orderBy("hour", "city").show(4)
spark.sql(
    """
    select city, min(celsius) as coldest, max(celsius) as warmest,
        count_if(celsius < 0) as below_zero
    from readings join stations using (station) group by city order by city
    """
).show()

# %% [markdown]
# ## From topic to topic, as a stream
# Readings below zero go to a topic of their own. The query's checkpoint says how far it came;
# `deduplication` makes the broker drop what a query that was killed writes for the second time, so
# that each frost is there exactly once. `availableNow` ends the query when all is read; without a
# trigger it would go on for ever.

# %%
folder = cleanup.enter_context(tempfile.TemporaryDirectory())


def carry_frosts() -> int:
    """Carry what is new; how many readings were looked at."""
    stream = (
        spark.readStream.format("pulsar")
        .options(**pulsar, topic=readings_topic, startingOffsets="earliest")
        .load()
    )
    frosts = stream.where("celsius < 0").select("station", "celsius", "__key", "__eventTime")
    query = (
        frosts.writeStream.format("pulsar")
        .options(**pulsar, topic=frosts_topic, deduplication="true")
        .option("checkpointLocation", f"{folder}/frosts")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


print(carry_frosts(), "readings streamed")
print(carry_frosts(), "after a restart, since the checkpoint knows the rest")

frosts = spark.read.format("pulsar").options(**pulsar, topic=frosts_topic).load()
below_zero = sum(celsius < 0 for _, celsius, _ in rows)
print(frosts.count(), "frosts of", below_zero)
assert frosts.count() == below_zero

# %% [markdown]
# ## Write back, exactly once
# A batch that is run again, after a crash or by a scheduler, writes nothing twice if it has a name
# and a number: the broker knows both, if the rows are the same and in the same order. So they are
# sorted in the one partition that is written, and averages are of decimals: those of doubles differ
# in their last digit with the order in which they are summed up.

# %%
for attempt in ("once", "and again"):
    (
        hours.repartition(1)
        .sortWithinPartitions("hour", "city")
        .selectExpr("city", "celsius", "hour", "city as __key", "hour as __eventTime")
        .write.format("pulsar")
        .mode("append")
        .options(**pulsar, topic=hours_topic, deduplication="true")
        .options(producerName=f"hours-{run}", deduplicationEpoch="0")
        .save()
    )
    print("written", attempt)

back = spark.read.format("pulsar").options(**pulsar, topic=hours_topic).load()
print(back.count(), "hours of", hours.count())
assert back.count() == hours.count()

# %% [markdown]
# ## A picture

# %%
plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
figure, axes = plt.subplots(figsize=(11, 5.5), layout="constrained")
colours = dict(zip((city for _, city, _, _ in STATIONS), ("C0", "C4", "C1", "C2"), strict=True))
by_city = {}
for row in back.select("city", "hour", "celsius").orderBy("hour").toLocalIterator():
    middle = row.hour + datetime.timedelta(minutes=30)
    by_city.setdefault(row.city, []).append((middle, row.celsius))
for city, points in sorted(by_city.items(), key=lambda item: -item[1][-1][1]):
    times, celsius = zip(*points, strict=True)
    axes.plot(times, celsius, color=colours[city], linewidth=1.8)
    axes.annotate(
        city,
        (times[-1], celsius[-1]),
        xytext=(6, 0),
        textcoords="offset points",
        color=colours[city],
        va="center",
        weight="bold",
    )

cold = frosts.join(stations, "station").select("city", "__eventTime", "celsius").collect()
axes.scatter(
    [row["__eventTime"] for row in cold],
    [row.celsius for row in cold],
    s=3,
    alpha=0.35,
    zorder=1,
    color=[colours[row.city] for row in cold],
)
axes.scatter([], [], s=12, color="0.5", label=f"{len(cold)} readings below zero, by the stream")
axes.plot([], [], color="0.5", label="means of hours")
axes.axhline(0, color="0.4", linewidth=0.8)
axes.set_title("Five days of January at four stations", loc="left", weight="bold")
axes.set_ylabel("°C")
axes.margins(x=0.01)
axes.grid(axis="y", color="0.9")
axes.xaxis.set_major_locator(mdates.DayLocator())
axes.xaxis.set_major_formatter(mdates.DateFormatter("%a %d %b"))
axes.xaxis.set_minor_locator(mdates.HourLocator(byhour=(6, 12, 18)))
axes.legend(loc="lower right", bbox_to_anchor=(1, 0.99), ncols=2, frameon=False, borderaxespad=0)
figure.savefig(chosen.plot, dpi=120)
print("plotted to", chosen.plot)

# %%
cleanup.close()
