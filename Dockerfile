# flipmeter with the embedded model's engine: docker run -v "$PWD:/data" IMAGE run study.yaml
FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN python -m pip install --no-cache-dir build==1.3.0 && python -m build --wheel

FROM python:3.12-slim
COPY --from=build /source/dist/*.whl /tmp/
RUN python -m pip install --no-cache-dir /tmp/*.whl && rm /tmp/*.whl \
    && useradd --create-home flipmeter
USER flipmeter
WORKDIR /data
ENTRYPOINT ["flipmeter"]
CMD ["--help"]
