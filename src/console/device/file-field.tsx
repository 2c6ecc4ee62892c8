interface FileFieldProps {
  id: string;
  onChoose(file: File | undefined): void;
}

/** The field of a configuration file to upload. */
export function FileField({ id, onChoose }: FileFieldProps) {
  return (
    <div className="field">
      <label htmlFor={id}>
        File<span className="required"> (required)</span>
      </label>
      <input id={id} type="file" onChange={({ target }) => onChoose(target.files?.[0])} />
    </div>
  );
}
